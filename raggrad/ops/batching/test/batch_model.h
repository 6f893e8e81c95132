// The obvious serial code of Batch: says how each call must end. The oracle of the tests.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "raggrad/ops/batching/batching.h"

namespace raggrad::testing {

inline constexpr int64_t kMaxBatchSize = 6;
inline constexpr int64_t kBatchTimeoutMicros = 2'000'000'000;  // half an hour: never comes in a test

struct BatchOperands {
  std::vector<Tensor> tensors;
  std::string queue;
  Waiting waits = {};

  Waiting& waiting() { return waits; }
  int64_t rows() const { return tensors[0].shape()[0]; }
  BatchCall call() const {
    BatchCall call{.resource = {"", "b"},
                   .in_tensors = {},
                   .max_batch_size = kMaxBatchSize,
                   .batch_timeout_micros = kBatchTimeoutMicros,
                   .allowed_batch_sizes = {2, 5, kMaxBatchSize},
                   .batching_queue = queue,
                   .waiting = waits};
    for (const Tensor& tensor : tensors) call.in_tensors.push_back({tensor.view()});
    return call;
  }
};

// The end of a call: an error, or membership in `batch`, whose last call is the owner.
struct BatchEnd {
  int call;
  Code code = Code::kOk;
  std::vector<int> batch = {};
};
using BatchEnds = std::vector<BatchEnd>;

class BatchModel {
 public:
  BatchEnds Call(int number, const BatchOperands& operands, bool cancelled) {
    if (operands.rows() == 0) return {{number}};
    if (operands.rows() > kMaxBatchSize) return {{number, Code::kInvalidArgument}};
    if (cancelled) return {{number, Code::kCancelled}};
    BatchEnds ends;
    std::vector<Task>& open = open_[operands.queue];
    if (Rows(open) + operands.rows() > kMaxBatchSize) Process(open, ends);
    open.push_back({number, operands.rows(), KindOf(operands)});
    if (Rows(open) == kMaxBatchSize) Process(open, ends);
    return ends;
  }

  BatchEnds EndWait(int number, Code why) {
    for (auto& [queue, open] : open_) {
      if (std::erase_if(open, [&](const Task& task) { return task.call == number; }) > 0) return {{number, why}};
    }
    return {};
  }

  BatchEnds Close() {
    BatchEnds ends;
    for (const auto& [queue, open] : open_) {
      for (const Task& task : open) ends.push_back({task.call, Code::kCancelled});
    }
    open_.clear();
    return ends;
  }

  static int64_t Padded(int64_t rows) { return rows <= 2 ? 2 : rows <= 5 ? 5 : kMaxBatchSize; }
  int64_t waiting() const {
    size_t waiting = 0;
    for (const auto& [queue, open] : open_) waiting += open.size();
    return static_cast<int64_t>(waiting);
  }

 private:
  struct Task {
    int call;
    int64_t rows;
    std::vector<int64_t> kind;
  };

  // Attributes that all calls of a batch must share.
  static std::vector<int64_t> KindOf(const BatchOperands& operands) {
    std::vector<int64_t> kind;
    for (const Tensor& tensor : operands.tensors) {
      kind.push_back(static_cast<int64_t>(tensor.dtype()));
      kind.push_back(tensor.shape().rank());
      kind.insert(kind.end(), tensor.shape().tail().begin(), tensor.shape().tail().end());
    }
    return kind;
  }

  static int64_t Rows(const std::vector<Task>& tasks) {
    int64_t rows = 0;
    for (const Task& task : tasks) rows += task.rows;
    return rows;
  }

  static void Process(std::vector<Task>& tasks, BatchEnds& ends) {
    const bool fits = std::ranges::all_of(tasks, [&](const Task& task) { return task.kind == tasks[0].kind; });
    std::vector<int> batch;
    for (const Task& task : tasks) batch.push_back(task.call);
    for (const int call : batch) ends.push_back({call, fits ? Code::kOk : Code::kInvalidArgument, batch});
    tasks.clear();
  }

  std::map<std::string, std::vector<Task>> open_;
};

}  // namespace raggrad::testing
