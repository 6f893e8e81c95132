// Results of the fuzzer's calls, and their comparison with the pieces they are made of.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "raggrad/ops/batching/batching.h"
#include "raggrad/testing/fuzz_driver.h"
#include "raggrad/testing/owned.h"

namespace raggrad::fuzz {

// The result of a call.
struct Ended {
  Status status;
  Outputs outputs;  // of Batch: the tensors, batch_index and id
};

inline Ended Take(Result<Tensor> result) {
  Ended ended{result.status(), {}};
  if (result.ok()) ended.outputs.push_back(*std::move(result));
  return ended;
}
inline Ended Take(Result<BatchOutput> result) {
  Ended ended{result.status(), {}};
  if (!result.ok()) return ended;
  ended.outputs = std::move(result->batched_tensors);
  ended.outputs.push_back(std::move(result->batch_index));
  ended.outputs.push_back(std::move(result->id));
  return ended;
}

// The results of calls, by number. Thread-safe, since callbacks run on several threads.
class Log {
 public:
  void Add(int number, Ended ended) {
    const std::lock_guard lock(mutex_);
    if (!ended_.try_emplace(number, std::move(ended)).second) Trap("log", "a call completed twice");
    fresh_.push_back(number);
    changed_.notify_all();
  }
  void Await(int number) {
    std::unique_lock lock(mutex_);
    const auto ended = [&] { return ended_.contains(number); };
    if (!changed_.wait_for(lock, std::chrono::seconds(20), ended)) Trap("log", "a deadline was not kept");
  }
  const Ended* Find(int number) {
    const std::lock_guard lock(mutex_);
    const auto found = ended_.find(number);
    return found == ended_.end() ? nullptr : &found->second;
  }
  std::vector<int> TakeFresh() {
    const std::lock_guard lock(mutex_);
    return std::exchange(fresh_, {});
  }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return ended_.size();
  }
  void Clear() {
    const std::lock_guard lock(mutex_);
    ended_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Ended> ended_;
  std::vector<int> fresh_;
};

// Rows [begin, begin + rows) of a tensor.
inline TensorView RowsOf(const TensorView& tensor, int64_t begin, int64_t rows) {
  TensorView view = tensor;
  view.shape = Shape::WithDim0(rows, tensor.shape.tail());
  const int64_t row_elements = tensor.dim(0) == 0 ? 0 : *tensor.shape.NumElements() / tensor.dim(0);
  view.data = tensor.As<char>() + begin * row_elements * static_cast<int64_t>(DTypeSize(tensor.dtype));
  return view;
}

// Traps unless `got` is the pieces one after the other. Without pieces it must have no rows, and the type and inner
// shape of `otherwise`.
inline void ExpectRows(const TensorView& got, const std::vector<TensorView>& pieces, const TensorView& otherwise) {
  const TensorView& like = pieces.empty() ? otherwise : pieces[0];
  int64_t rows = 0;
  for (const TensorView& piece : pieces) rows += piece.dim(0);
  if (got.dtype != like.dtype || got.shape != Shape::WithDim0(rows, like.shape.tail())) Trap("output", "another shape");
  if (got.shape.NumElements() == 0) return;
  int64_t begin = 0;
  for (const TensorView& piece : pieces) {
    if (piece.shape.NumElements() != 0) {
      const std::string difference = testing::Difference(RowsOf(got, begin, piece.dim(0)), piece);
      if (!difference.empty()) Trap("output", difference);
    }
    begin += piece.dim(0);
  }
}

}  // namespace raggrad::fuzz
