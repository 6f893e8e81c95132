// The GIL, for calls that wait and for threads that Python does not know.
//
// Calls that wait leave things behind: threads that sleep, arrays that are kept, completions that run later on whatever
// thread ends the wait. All of that may meet an interpreter that ends, and a thread that wants the GIL then is torn out
// of the middle of its C++ code. So everybody inside of this code is counted. When the interpreter ends, it waits for
// them to leave; threads that would have to come back later stay where they are, as Python's own daemon threads do.
#pragma once

#include <nanobind/nanobind.h>

#include "raggrad/core/allocator.h"
#include "raggrad/core/executor.h"

namespace raggrad::python {

namespace nb = nanobind;

// A function that Python calls, and that therefore has the GIL: it may release the GIL for work that waits or copies
// much.
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

// Takes the GIL, on any thread, also on one that has it. Not ok() once the interpreter ends: then nothing of Python may
// be touched, and Python objects are left to the end of the process.
class GilGuard {
 public:
  GilGuard() noexcept;
  ~GilGuard();
  GilGuard(const GilGuard&) = delete;
  GilGuard& operator=(const GilGuard&) = delete;

  bool ok() const noexcept { return ok_; }

 private:
  const bool before_;
  const bool ok_;
  PyGILState_STATE state_ = PyGILState_LOCKED;
};

// Refuses guards from now on, and all calls but those of this thread. Call it with the GIL held.
void RefuseCalls() noexcept;
// Returns when all threads have left. Call it with the GIL held, and outside of a CallFromPython.
void AwaitCalls();
// Whether calls are refused. A thread other than the one that refused them, which must not come back, does not return
// from this; if `has_gil`, it gives the GIL away first.
bool CallsRefused(bool has_gil) noexcept;
// In a child of fork(): the other threads are gone.
void ForgetCalls() noexcept;

// The bindings' memory and pool for copies. The GIL is given away while a thread fills a block of more than 2 MiB,
// which takes some 100 us: to have it back can take as long.
Allocator& CopyAllocator() noexcept;
Executor& CopyParallel() noexcept;

}  // namespace raggrad::python
