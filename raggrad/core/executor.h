// Executor: the pool of threads that a call may use.
#pragma once

#include <cstdint>
#include <memory>

#include "raggrad/core/function_ref.h"

#pragma GCC visibility push(default)
namespace raggrad {

using TaskRef = FunctionRef<void(int64_t)>;

class Executor {
 public:
  virtual ~Executor() = default;

  // Number of tasks that really run at the same time, at least 1. Work is cut by it; results do not depend on it.
  virtual int num_workers() const noexcept = 0;

  // Calls body(t) once for every t in [0, tasks), in any order, on any threads, and returns when all are done.
  // Tasks never throw and never wait for each other.
  virtual void Run(int64_t tasks, TaskRef body) noexcept = 0;

  // Whether the caller has stopped the call, as after Ctrl-C. Asked between tasks, on any thread; once true, it stays
  // true. Operators then skip most of the remaining work and return CANCELLED. An update in place that has begun is
  // finished.
  virtual bool stopped() const noexcept { return false; }
};

// Runs everything on the calling thread.
Executor& SerialExecutor() noexcept;

// Makes a pool of `workers` threads, 4096 at most; the caller of Run counts as one of them. If threads cannot be
// started it has fewer. Null if there is no memory.
//
// A Run that meets another one in progress runs its tasks on the calling thread. Threads that had work look for more
// for 200 us before they sleep, on at most half of the processors that the process may use.
//
// In a child of fork() a pool of the parent runs tasks on the calling thread, and its destructor touches no thread. A
// pool that is made in the child has threads of its own.
std::unique_ptr<Executor> MakeThreadPool(int workers) noexcept;

// The process's thread pool, made on first use and never destroyed. It has RAGGRAD_NUM_THREADS workers, or else one for
// each processor that affinity and the container's CPU quota, rounded down, leave to the process.
Executor& DefaultExecutor() noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
