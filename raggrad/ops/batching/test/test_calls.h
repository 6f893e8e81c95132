// For the tests of this family: operands that own their memory, and a log of the results of asynchronous calls.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "raggrad/ops/batching/batching.h"
#include "raggrad/testing/owned.h"

namespace raggrad::testing {

// A [rows, columns] piece of the numbers `first`, `first` + 1, ..., by which it can be recognised.
inline std::shared_ptr<const Tensor> FloatPiece(int64_t rows, int64_t columns, float first) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  std::iota(values.begin(), values.end(), first);
  return std::make_shared<const Tensor>(TensorOf(values, Shape{rows, columns}));
}

// The expected join: the pieces one after the other. Without pieces, no rows of the type and inner shape of
// `otherwise`.
inline Tensor JoinedByHand(const TensorView& otherwise, const std::vector<TensorView>& pieces) {
  const TensorView& like = pieces.empty() ? otherwise : pieces[0];
  int64_t rows = 0;
  std::string bytes;
  std::vector<std::string> strings;
  for (const TensorView& piece : pieces) {
    rows += piece.dim(0);
    const auto elements = static_cast<size_t>(piece.shape.NumElements().value_or(0));
    if (like.dtype == DType::kString) {
      for (const String& string : std::span(piece.As<String>(), elements))
        strings.emplace_back(string.data, string.size);
    } else if (elements > 0) {
      bytes.append(piece.As<char>(), elements * DTypeSize(piece.dtype));
    }
  }
  Shape shape = Shape::WithDim0(rows, like.shape.tail());
  return like.dtype == DType::kString ? TensorOfStrings(shape, strings) : TensorOfBytes(like.dtype, shape, bytes);
}

// Difference(), which also takes types without a C++ type if there are no elements.
inline std::string DifferenceOrEmpty(const TensorView& got, const TensorView& want) {
  const bool both_empty = got.dtype == want.dtype && got.shape == want.shape && want.shape.NumElements() == 0;
  return both_empty ? "" : Difference(got, want);
}

// A batch_index with one row per piece: key, first row, end.
inline std::shared_ptr<const Tensor> Index(const std::vector<int64_t>& keys, const std::vector<int64_t>& rows = {}) {
  std::vector<int64_t> index;
  int64_t end = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const int64_t begin = end;
    end += i < rows.size() ? rows[i] : 1;
    index.insert(index.end(), {keys[i], begin, end});
  }
  return std::make_shared<const Tensor>(TensorOf(index, Shape{static_cast<int64_t>(keys.size()), 3}));
}

// Operands of one UnbatchGrad call, and the call that refers to them. An owner lists the keys of its batch; a call
// without keys is not an owner.
class GradOperands {
 public:
  GradOperands(int64_t id, std::shared_ptr<const Tensor> grad, const std::vector<int64_t>& keys = {})
      : id_(std::make_shared<const int64_t>(id)), grad_(std::move(grad)), index_(Index(keys)) {
    call_.resource = ResourceName{"", "r"};
    call_.original_input = {nullptr, grad_->dtype(), Shape{static_cast<int64_t>(keys.size()), 1}};
    call_.batch_index = index_->view();
    call_.grad = {grad_->view()};
    call_.id = TensorView::Scalar(*id_);
  }

  UnbatchGradCall& call() noexcept { return call_; }
  const UnbatchGradCall& call() const noexcept { return call_; }
  const Tensor& grad() const noexcept { return *grad_; }
  int64_t id() const noexcept { return *id_; }
  void SetIndex(std::shared_ptr<const Tensor> index) {
    index_ = std::move(index);
    call_.batch_index = index_->view();
  }

 private:
  std::shared_ptr<const int64_t> id_;  // shared with copies, because the call points to it
  std::shared_ptr<const Tensor> grad_;
  std::shared_ptr<const Tensor> index_;
  UnbatchGradCall call_;
};

// The results of asynchronous calls, by number. Each may complete once.
template <class T>
class CallLog {
 public:
  // The completion of call `number`. The log outlives it.
  Completion<T> Record(int number) {
    return [this, number](Result<T> result) {
      const std::lock_guard lock(mutex_);
      const bool first = results_.try_emplace(number, std::move(result)).second;
      EXPECT_TRUE(first) << "call " << number << " completed twice";
      new_.push_back(number);
      changed_.notify_all();
    };
  }

  // The result of a call; null if it still waits.
  const Result<T>* Find(int number) const {
    const std::lock_guard lock(mutex_);
    const auto found = results_.find(number);
    return found == results_.end() ? nullptr : &found->second;
  }

  // Waits for a result; null if there is none within a minute.
  const Result<T>* Await(int number) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::minutes(1), [&] { return results_.contains(number); });
    const auto found = results_.find(number);
    return found == results_.end() ? nullptr : &found->second;
  }

  // The calls that have completed since the last TakeNew, in that order.
  std::vector<int> TakeNew() {
    const std::lock_guard lock(mutex_);
    return std::exchange(new_, {});
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return results_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Result<T>> results_;
  std::vector<int> new_;
};

}  // namespace raggrad::testing
