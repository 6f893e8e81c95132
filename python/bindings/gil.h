// The GIL, for calls that wait and for threads that Python does not know.
//
// Calls that wait leave things behind: threads that sleep, arrays that are kept, completions that run later on whatever
// thread ends the wait. The interpreter may end meanwhile, and Python kills a thread that asks for the GIL then, in the
// middle of its C++ code. So threads inside this code are counted. The end of the interpreter waits for them to leave.
// Threads that would have to come back later stay where they are, as Python's own daemon threads do.
#pragma once

#include <nanobind/nanobind.h>

#include "raggrad/core/allocator.h"
#include "raggrad/core/executor.h"

namespace raggrad::python {

namespace nb = nanobind;

// Marks a function that Python calls, and that therefore has the GIL. It may release the GIL to wait or to copy much.
class CallFromPython {
 public:
  CallFromPython() noexcept;
  ~CallFromPython();
  CallFromPython(const CallFromPython&) = delete;
  CallFromPython& operator=(const CallFromPython&) = delete;

 private:
  const bool before_;
};

// Releases the GIL for a while, in a call from Python.
class WithoutGil {
 public:
  WithoutGil() noexcept;
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

// Takes the GIL on any thread, also on one that has it. Not ok() once the interpreter ends: then Python must not be
// touched, and its objects stay until the end of the process.
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

// Refuses guards from now on, and the calls of all other threads. Call it with the GIL held.
void RefuseCalls() noexcept;
// Returns when all threads have left. Call it with the GIL held, and outside a CallFromPython.
void AwaitCalls();
// Whether calls are refused. If they are, only the thread that refused them returns from this. Any other thread sleeps
// for good, because it must not come back to Python; if `has_gil`, it releases the GIL first.
bool CallsRefused(bool has_gil) noexcept;
// Resets the counts in a child of fork(), where the other threads are gone.
void ForgetCalls() noexcept;

// Allocator and executor of the bindings for copies. The executor releases the GIL while a thread fills a block of more
// than 2 MiB, which takes some 100 us: taking the GIL back can take as long.
Allocator& CopyAllocator() noexcept;
Executor& CopyExecutor() noexcept;

}  // namespace raggrad::python
