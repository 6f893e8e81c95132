// XlaExecutor: XLA's own threads as an executor, for the time of one call.
#pragma once

#include "raggrad/core/executor.h"
#include "xla_ffi.h"

namespace raggrad::jax_door {

// The caller works, too, and waits only for tasks that a thread has begun. So calls on all of XLA's threads at a time
// cannot wait for each other, and a child of fork(), which has none of the threads, does all of the work by itself.
class XlaExecutor final : public Executor {
 public:
  // Without threads, everything runs on the calling thread.
  explicit XlaExecutor(ffi::ThreadPool* threads) noexcept;

  int num_workers() const noexcept override { return num_workers_; }
  void Run(int64_t tasks, TaskRef body) noexcept override;

 private:
  ffi::ThreadPool* const threads_;
  const int num_workers_;
};

}  // namespace raggrad::jax_door
