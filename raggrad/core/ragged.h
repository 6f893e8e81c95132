// Views of ragged data. A ragged tensor is a list of row-splits, outermost first, over a dense tensor of values; a
// variant array is an array of any rank whose elements are ragged tensors, or missing.
#pragma once

#include <optional>
#include <span>

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

}  // namespace raggrad
#pragma GCC visibility pop
