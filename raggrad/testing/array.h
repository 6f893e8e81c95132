// Array<T>: a std::vector with a shape, for operands; and comparison of results by their bits.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "raggrad/core/shape.h"
#include "raggrad/core/tensor.h"
#include "raggrad/core/tensor_view.h"
#include "raggrad/testing/same_bits.h"

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

// Whether `got` has dtype T, the shape and, bit for bit, the values of `want`.
template <class T>
::testing::AssertionResult HoldsBits(const TensorView& got, const Array<T>& want) {
  if (got.dtype != kDTypeOf<T>) return ::testing::AssertionFailure() << "dtype is " << DTypeName(got.dtype);
  if (!(got.shape == want.shape)) {
    auto failure = ::testing::AssertionFailure() << "shape is [";
    for (const int64_t dim : got.shape.dims()) failure << " " << dim;
    return failure << " ]";
  }
  for (size_t i = 0; i < want.values.size(); ++i) {
    if (!SameBits(got.As<T>()[i], want.values[i])) {
      return ::testing::AssertionFailure() << "element " << i << " is " << ::testing::PrintToString(got.As<T>()[i])
                                           << ", expected " << ::testing::PrintToString(want.values[i]);
    }
  }
  return ::testing::AssertionSuccess();
}

// The same for two tensors of any type that is not a string.
inline ::testing::AssertionResult SameTensor(const TensorView& got, const TensorView& want) {
  auto same = ::testing::AssertionFailure() << "dtype is " << DTypeName(want.dtype);
  (void)Visit(NumberTypes{}, want.dtype, [&]<class T>() -> Status {
    const T* elements = want.As<T>();
    same = HoldsBits(got, Array<T>{{elements, elements + *want.shape.NumElements()}, want.shape});
    return {};
  });
  return same;
}

}  // namespace raggrad::testing
