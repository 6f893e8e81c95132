// Plays the steps of a recorded scenario through the asynchronous interface.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "raggrad/ops/batching/batching.h"
#include "raggrad/ops/batching/test/scenario.h"
#include "raggrad/ops/batching/test/test_calls.h"

namespace raggrad::testing {

// The call of a step. It refers to the step's tensors.
UnbatchGradCall UnbatchGradCallOf(const ScenarioStep& step);
UnbatchCall UnbatchCallOf(const ScenarioStep& step);
BatchCall BatchCallOf(const ScenarioStep& step);

// The outputs of all operators look alike here: Batch has several tensors, the others one.
using Outputs = std::vector<Tensor>;

class ScenarioPlayer {
 public:
  // Starts the step's call, or carries out its Await or Sleep.
  void Play(const ScenarioStep& step);

  // The result of a call; null if it still waits.
  const Result<Outputs>* Find(int call) const { return log_.Find(call); }
  const Result<Outputs>* Await(int call) { return log_.Await(call); }
  std::vector<int> TakeNew() { return log_.TakeNew(); }
  BatchingRuntime& runtime() noexcept { return runtime_; }

  // "" if a result is as recorded, otherwise the difference. Ids of Batch are random, so they are compared by the calls
  // that got them.
  std::string DifferenceTo(const ScenarioOutcome& expected, int call) const;

 private:
  int64_t SymbolicId(int64_t id) const;

  CallLog<Outputs> log_;
  std::vector<int> batch_calls_;
  BatchingRuntime runtime_;  // last: its destructor still completes calls
};

}  // namespace raggrad::testing
