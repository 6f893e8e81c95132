// StoppableExecutor: a Executor whose caller may want no result any more, as after Ctrl-C.
#pragma once

#include "raggrad/core/executor.h"

#pragma GCC visibility push(default)
namespace raggrad {

class StoppableExecutor : public Executor {
 public:
  // Asked between tasks, from any thread; once true, it stays true. Operators of a Context with such a Executor then
  // leave out most of what is left to do and return CANCELLED. Updates in place are made whole once they have begun.
  virtual bool stopped() const noexcept = 0;
};

}  // namespace raggrad
#pragma GCC visibility pop
