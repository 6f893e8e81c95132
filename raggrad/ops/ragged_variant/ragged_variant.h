// Gradient of RaggedTensorToVariant: joins the gradients of the pieces into that of the dense values.
//
// The values of the elements, in row-major order of the array, one after the other, are the result. Splits inside an
// element are not looked at. A missing element stands for zeros (empty strings) of shape
// [row_splits[i+1] - row_splits[i]] + dense_values_shape[1:].
//
//   * Exactly one element: its values are the result as they are; dense_values_shape is not used. A missing one gives
//     zeros of the shape just stated, or of dense_values_shape if row_splits is a scalar.
//   * Otherwise the result has dense_values_shape, and the elements must fill it exactly.
//
// Shapes and types:
//   encoded_ragged_grad  any shape   elements of dtype `values_dtype`
//   row_splits           [rows + 1]  int32 or int64: first 0, not decreasing; or a scalar, which is not looked at
//   dense_values_shape   [rank]      int32. Always in host memory.
//   values_dtype                     one of the 21 ragged types, strings and quantized ones included
//
// Memory beyond the output: 8 bytes per element and, for strings, 32 per worker. A string result is one allocation: its
// characters lie behind its elements (core/dtype.h).
// Errors: README.md beside this file has the table. Nothing is written on failure.
#pragma once

#include "raggrad/core/context.h"
#include "raggrad/core/ragged.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor.h"

#pragma GCC visibility push(default)
namespace raggrad {

Result<Tensor> RaggedTensorToVariantGradient(const VariantArrayView& encoded_ragged_grad, const TensorView& row_splits,
                                             const TensorView& dense_values_shape, DType values_dtype,
                                             const Context& ctx = {}) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
