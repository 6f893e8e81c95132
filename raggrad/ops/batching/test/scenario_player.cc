#include "raggrad/ops/batching/test/scenario_player.h"

#include <chrono>
#include <thread>
#include <utility>

namespace raggrad::testing {
namespace {

const TensorView& Input(const ScenarioStep& step, const std::string& name) { return step.inputs.at(name)[0].view(); }

int64_t Int(const ScenarioStep& step, const std::string& name) { return step.ints.at(name).at(0); }

ResourceName Resource(const ScenarioStep& step) {
  return {step.strings.at("container"), step.strings.at("shared_name")};
}

Completion<Tensor> ToOutputs(Completion<Outputs> done) {
  return [done = std::move(done)](Result<Tensor> result) {
    if (!result.ok()) return done(result.status());
    Outputs outputs;
    outputs.push_back(*std::move(result));
    done(std::move(outputs));
  };
}

Completion<BatchOutput> BatchToOutputs(Completion<Outputs> done) {
  return [done = std::move(done)](Result<BatchOutput> result) {
    if (!result.ok()) return done(result.status());
    Outputs outputs = std::move(result->batched_tensors);
    outputs.push_back(std::move(result->batch_index));
    outputs.push_back(std::move(result->id));
    done(std::move(outputs));
  };
}

}  // namespace

UnbatchGradCall UnbatchGradCallOf(const ScenarioStep& step) {
  return {.resource = Resource(step),
          .original_input = Input(step, "original_input"),
          .batch_index = Input(step, "batch_index"),
          .grad = {Input(step, "grad")},
          .id = Input(step, "id")};
}

UnbatchCall UnbatchCallOf(const ScenarioStep& step) {
  return {.resource = Resource(step),
          .batched_tensor = Input(step, "batched_tensor"),
          .batch_index = Input(step, "batch_index"),
          .id = Input(step, "id"),
          .timeout_micros = Int(step, "timeout_micros")};
}

BatchCall BatchCallOf(const ScenarioStep& step) {
  BatchCall call{.resource = Resource(step),
                 .in_tensors = {},
                 .num_batch_threads = Int(step, "num_batch_threads"),
                 .max_batch_size = Int(step, "max_batch_size"),
                 .batch_timeout_micros = Int(step, "batch_timeout_micros"),
                 .max_enqueued_batches = Int(step, "max_enqueued_batches"),
                 .allowed_batch_sizes = step.ints.at("allowed_batch_sizes"),
                 .batching_queue = step.strings.at("batching_queue")};
  for (const Tensor& tensor : step.inputs.at("in_tensors")) call.in_tensors.push_back({tensor.view()});
  return call;
}

void ScenarioPlayer::Play(const ScenarioStep& step) {
  if (step.call == "Await") {
    log_.Await(step.number);
    for (const int call : step.completes) log_.Await(call);
  } else if (step.call == "Sleep") {
    std::this_thread::sleep_for(std::chrono::microseconds(step.micros));
  } else if (step.call == "UnbatchGrad") {
    runtime_.UnbatchGradAsync(UnbatchGradCallOf(step), ToOutputs(log_.Record(step.number)));
  } else if (step.call == "Unbatch") {
    runtime_.UnbatchAsync(UnbatchCallOf(step), ToOutputs(log_.Record(step.number)));
  } else {
    ASSERT_EQ(step.call, "Batch");
    batch_calls_.push_back(step.number);
    runtime_.BatchAsync(BatchCallOf(step), BatchToOutputs(log_.Record(step.number)));
  }
}

int64_t ScenarioPlayer::SymbolicId(int64_t id) const {
  for (const int call : batch_calls_) {
    const Result<Outputs>* const result = log_.Find(call);
    if (result != nullptr && result->ok() && (*result)->back().shape().rank() == 0 &&
        *(*result)->back().As<int64_t>() == id) {
      return call;
    }
  }
  return -1;
}

std::string ScenarioPlayer::DifferenceTo(const ScenarioOutcome& expected, int call) const {
  const Result<Outputs>* const result = log_.Find(call);
  if (result == nullptr) return expected.pending ? "" : "still waits";
  if (expected.pending) return "has ended";
  if (result->status().code() != expected.code ||
      result->status().message().find(expected.message) == std::string_view::npos) {
    return "ended with " + std::string(CodeName(result->status().code())) + ": " +
           std::string(result->status().message()) + "; expected " + std::string(CodeName(expected.code)) + ": " +
           expected.message;
  }
  if (!result->ok()) return "";
  const Outputs& got = **result;
  if (got.size() != expected.outputs.size()) return "has another number of outputs";
  const bool batch = got.size() > 1;
  for (size_t i = 0; i < got.size(); ++i) {
    const TensorView& want = expected.outputs[i].view();
    std::string difference;
    if (!batch || i + 2 < got.size()) {
      difference = DifferenceOrEmpty(got[i].view(), want);
    } else {  // batch_index or id: ids are symbols
      const int64_t elements = got[i].shape().NumElements().value_or(0);
      std::vector<int64_t> values(got[i].As<int64_t>(), got[i].As<int64_t>() + elements);
      for (size_t k = 0; k < values.size(); k += 3) values[k] = SymbolicId(values[k]);
      difference = DifferenceOrEmpty(TensorOf(values, got[i].shape()).view(), want);
    }
    if (!difference.empty()) return "output " + std::to_string(i) + ": " + difference;
  }
  return "";
}

}  // namespace raggrad::testing
