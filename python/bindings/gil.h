// The GIL, for calls that wait and for threads that Python does not know.
//
// Calls that wait leave things behind: threads that sleep, arrays that are kept, completions that run later on whatever
// thread ends the wait. All of that may meet an interpreter that ends, and a thread that wants the GIL then is torn out
// of the middle of its C++ code. So everybody inside of this code is counted. When the interpreter ends, it waits for
// them to leave; threads that would have to come back later stay where they are, as Python's own daemon threads do.
#pragma once

#include <nanobind/nanobind.h>

#include "raggrad/core/allocator.h"
#include "raggrad/core/parallel.h"

namespace raggrad::python {

namespace nb = nanobind;

// A function that Python calls, and that therefore has the GIL: a visitor who may call whatever waits or copies much.
class CallFromPython {
 public:
  CallFromPython() noexcept;
  ~CallFromPython();
  CallFromPython(const CallFromPython&) = delete;
  CallFromPython& operator=(const CallFromPython&) = delete;

 private:
  const bool before_;
};

// Gives the GIL away for a while, in a call from Python.
class WithoutGil {
 public:
  WithoutGil() noexcept;
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

// Takes the GIL, on any thread, also on one that has it. Not welcome when the interpreter ends: then nothing of Python
// may be touched, and what it owns is left to the end of the process.
class GilVisit {
 public:
  GilVisit() noexcept;
  ~GilVisit();
  GilVisit(const GilVisit&) = delete;
  GilVisit& operator=(const GilVisit&) = delete;

  bool welcome() const noexcept { return welcome_; }

 private:
  const bool before_;
  const bool welcome_;
  PyGILState_STATE state_ = PyGILState_LOCKED;
};

// No more visits from now on, and no calls but those of this thread. Call it with the GIL held.
void RefuseVisits() noexcept;
// Returns when all visitors have left. Call it with the GIL held, and outside of a CallFromPython.
void AwaitVisitors();
// Whether visits are refused. A thread other than the one that refused them, which must not come back, does not return
// from this; if `has_gil`, it gives the GIL away first.
bool VisitsRefused(bool has_gil) noexcept;
// In a child of fork(): the other threads are gone.
void ForgetVisits() noexcept;

// The door's memory and pool for copies. The GIL is given away while a thread fills a block of more than 2 MiB, which
// takes some 100 us: to have it back can take as long.
Allocator& CopyAllocator() noexcept;
Parallel& CopyParallel() noexcept;

}  // namespace raggrad::python
