// StoppableExecutor: an Executor whose caller can stop a call, as after Ctrl-C.
#pragma once

#include "raggrad/core/executor.h"

#pragma GCC visibility push(default)
namespace raggrad {

class StoppableExecutor : public Executor {
 public:
  // Whether the caller has stopped the call. Asked between tasks, on any thread; once true, it stays true. Operators
  // then skip most of the remaining work and return CANCELLED. An update in place that has begun is finished.
  virtual bool stopped() const noexcept = 0;
};

}  // namespace raggrad
#pragma GCC visibility pop
