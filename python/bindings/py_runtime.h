// The C++ part of raggrad.batching.Runtime.
#pragma once

#include <memory>
#include <vector>

#include "raggrad/ops/batching/batching.h"

namespace raggrad::python {

// Owns a BatchingRuntime. Its operators keep the GIL: the library never holds a lock for long, and taking the GIL again
// after a call of a microsecond can cost milliseconds if other threads want it, too. They release it where a thread
// sleeps (InterruptibleSleeper) and where it copies much (CopyExecutor).
class PyRuntime {
 public:
  explicit PyRuntime(const ResourceLimits& limits);
  ~PyRuntime();
  PyRuntime(const PyRuntime&) = delete;
  PyRuntime& operator=(const PyRuntime&) = delete;

  BatchingRuntime& get() const noexcept { return *runtime_; }

  // Closes the resources of all runtimes.
  static void CloseAll();
  // The same when the interpreter ends, after which no thread gets the GIL back. Waits for the threads inside.
  static void EndAll();

 private:
  // All runtimes; the GIL guards them, and they are never destroyed.
  static std::vector<std::shared_ptr<BatchingRuntime>>& all();

  std::shared_ptr<BatchingRuntime> runtime_;
};

}  // namespace raggrad::python
