// Ragged data. A ragged tensor is a list of row-splits, outermost first, over a dense tensor of values; a variant array
// is an array of any rank whose elements are ragged tensors, or missing. Views, which own nothing, go into operators;
// Ragged and VariantArray, which own their memory, come out of them.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "raggrad/core/list.h"
#include "raggrad/core/tensor.h"
#include "raggrad/core/tensor_view.h"

#pragma GCC visibility push(default)
namespace raggrad {

struct RaggedView {
  std::span<const TensorView> nested_splits;
  TensorView values;
};

struct VariantArrayView {
  Shape shape;
  std::span<const std::optional<RaggedView>> elements;  // row-major; nullopt = missing
};

// Every tensor is an allocation of its own, so that each can be handed on by itself.
class Ragged {
 public:
  Ragged() noexcept = default;
  // `split_views` has as many entries as `nested_splits`; they are overwritten.
  Ragged(List<Tensor> nested_splits, List<TensorView> split_views, Tensor values) noexcept
      : nested_splits_(std::move(nested_splits)), split_views_(std::move(split_views)), values_(std::move(values)) {
    for (int64_t i = 0; i < nested_splits_.size(); ++i) split_views_[i] = nested_splits_[i].view();
  }

  RaggedView view() const noexcept { return {split_views_.span(), values_.view()}; }
  std::span<Tensor> nested_splits() noexcept { return nested_splits_.span(); }
  std::span<const Tensor> nested_splits() const noexcept { return nested_splits_.span(); }
  Tensor& values() noexcept { return values_; }
  const Tensor& values() const noexcept { return values_; }

 private:
  List<Tensor> nested_splits_;
  List<TensorView> split_views_;
  Tensor values_;
};

// Has two tensors, however many elements there are: one with all values, one with all splits.
class VariantArray {
 public:
  VariantArray() noexcept = default;
  // `elements` point into the other three.
  VariantArray(Shape shape, Tensor values, Tensor splits, List<TensorView> split_views,
               List<std::optional<RaggedView>> elements) noexcept
      : shape_(std::move(shape)),
        values_(std::move(values)),
        splits_(std::move(splits)),
        split_views_(std::move(split_views)),
        elements_(std::move(elements)) {}

  VariantArrayView view() const noexcept { return {shape_, elements_.span()}; }
  const Shape& shape() const noexcept { return shape_; }
  std::span<const std::optional<RaggedView>> elements() const noexcept { return elements_.span(); }
  // For callers that release the memory and describe the elements in their own way, such as the C API.
  Tensor& values() noexcept { return values_; }
  Tensor& splits() noexcept { return splits_; }

 private:
  Shape shape_;
  Tensor values_;
  Tensor splits_;
  List<TensorView> split_views_;
  List<std::optional<RaggedView>> elements_;
};

}  // namespace raggrad
#pragma GCC visibility pop
