// The obvious serial code of Unbatch: says how each call must end. The oracle of the tests.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "raggrad/ops/batching/batching.h"

namespace raggrad::testing {

// Operands of a call: a batch of one column, whose rows belong to the keys one after the other.
struct UnbatchOperands {
  int64_t id;
  Tensor batch;
  Tensor index;
  std::vector<int64_t> keys;
  std::vector<int64_t> rows;  // of each key
  Waiting waits = {};
  int64_t timeout_micros = 2'000'000'000;  // half an hour: never comes in a test

  Waiting& waiting() { return waits; }
  UnbatchCall call() const {
    return {{"", "u"}, batch.view(), index.view(), TensorView::Scalar(id), timeout_micros, waits};
  }
};

// The end of a call: an error, or rows [begin, end) of the batch of call `from`.
struct UnbatchEnd {
  int call;
  Code code = Code::kOk;
  int from = 0;
  int64_t begin = 0, end = 0;
};
using UnbatchEnds = std::vector<UnbatchEnd>;

class UnbatchModel {
 public:
  UnbatchEnds Call(int number, const UnbatchOperands& operands, bool cancelled) {
    UnbatchEnds ends;
    const auto fails = [&](Code code) {
      ends.push_back({number, code});
      return ends;
    };
    const int64_t total = std::accumulate(operands.rows.begin(), operands.rows.end(), int64_t{0});
    if (std::set(operands.keys.begin(), operands.keys.end()).size() != operands.keys.size() ||
        static_cast<int64_t>(operands.keys.size()) > operands.batch.shape()[0] || total > operands.batch.shape()[0]) {
      return fails(Code::kInvalidArgument);
    }
    if (const auto stored = stored_.find(operands.id); stored != stored_.end()) {
      const bool fits = stored->second.dtype == operands.batch.dtype();
      ends.push_back(stored->second.end);
      ends.back().call = number;
      if (!fits) ends.back().code = Code::kInvalidArgument;
      stored_.erase(stored);
      return ends;
    }
    const auto is_stored = [&](int64_t key) { return key != operands.id && stored_.contains(key); };
    if (waiting_.contains(operands.id) || std::ranges::any_of(operands.keys, is_stored)) {
      return fails(Code::kAlreadyExists);
    }
    const bool brings_own = std::ranges::find(operands.keys, operands.id) != operands.keys.end();
    if (!brings_own && cancelled) return fails(Code::kCancelled);
    waiting_.emplace(operands.id, Waiter{number, operands.batch.dtype()});
    int64_t begin = 0;
    for (size_t i = 0; i < operands.keys.size(); ++i) {
      const int64_t end = begin + operands.rows[i];
      Hand(operands.keys[i], {{0, Code::kOk, number, begin, end}, operands.batch.dtype()}, ends);
      begin = end;
    }
    return ends;
  }

  UnbatchEnds EndWait(int number, Code why) {
    const auto found = std::ranges::find_if(waiting_, [&](const auto& entry) { return entry.second.call == number; });
    if (found == waiting_.end()) return {};
    waiting_.erase(found);
    return {{number, why}};
  }

  UnbatchEnds Close() {
    UnbatchEnds ends;
    for (const auto& [key, waiter] : waiting_) ends.push_back({waiter.call, Code::kCancelled});
    stored_.clear();
    waiting_.clear();
    return ends;
  }

  size_t stored() const noexcept { return stored_.size(); }
  size_t waiting() const noexcept { return waiting_.size(); }

 private:
  struct Waiter {
    int call;
    DType dtype;
  };
  struct Stored {
    UnbatchEnd end;
    DType dtype;
  };

  void Hand(int64_t key, Stored piece, UnbatchEnds& ends) {
    const auto waiter = waiting_.find(key);
    if (waiter == waiting_.end()) {
      stored_.emplace(key, piece);
      return;
    }
    piece.end.call = waiter->second.call;
    if (waiter->second.dtype != piece.dtype) piece.end.code = Code::kInvalidArgument;
    ends.push_back(piece.end);
    waiting_.erase(waiter);
  }

  std::map<int64_t, Stored> stored_;
  std::map<int64_t, Waiter> waiting_;
};

}  // namespace raggrad::testing
