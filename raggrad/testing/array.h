// Array<T>: a std::vector with a shape, for operands; and comparison of results by their bits.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "raggrad/core/shape.h"
#include "raggrad/core/tensor.h"
#include "raggrad/core/tensor_view.h"

namespace raggrad::testing {

template <class T>
struct Array {
  std::vector<T> values;
  Shape shape;

  Array(std::vector<T> v) : values(std::move(v)), shape{static_cast<int64_t>(values.size())} {}  // NOLINT: implicit
  Array(std::vector<T> v, Shape s) : values(std::move(v)), shape(std::move(s)) {}

  TensorView view() const noexcept { return TensorView::Of(values.data(), shape); }
  operator TensorView() const noexcept { return view(); }  // NOLINT: implicit, to be passed as an argument
};

template <>
struct Array<bool>;  // std::vector<bool> has no data(): use Array<uint8_t> and change the view's dtype

// Whether `got` has the dtype, the shape and, bit for bit, the elements of `want`, which may be an Array.
::testing::AssertionResult HoldsBits(const TensorView& got, const TensorView& want);

}  // namespace raggrad::testing
