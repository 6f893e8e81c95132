// Ragged tensors as arrays of variants: a batch is cut into an array of pieces, the pieces are put together again, and
// the gradients of the pieces become that of the values. Bits are copied, nothing is computed.
//
//   const TensorView splits[] = {TensorView::Vector(rows)};
//   Result<VariantArray> pieces = RaggedTensorToVariant(splits, values, /*batched_input=*/true);
//   Result<Ragged> back = RaggedTensorFromVariant(pieces->view(), -1, 1, values.dtype, splits[0].dtype);
//
// The 21 ragged types are half, bfloat16, float32, float64, [u]int8...64, complex64, complex128, bool, string and the
// quantized ones. Splits are int32 or int64. String results are one allocation: their characters lie behind their
// elements (core/dtype.h).
//
// On a GPU (cuda/cuda.h) values are in device memory, all but strings. Splits describe shapes, so the splits of
// elements and of results are always in host memory; row_splits and rt_nested_splits may be in either, and are read if
// they are in device memory. Calls return when the copy of the values has been queued.
//
// Errors: README.md beside this file has the tables. Nothing is written on failure.
#pragma once

#include <cstdint>
#include <span>

#include "raggrad/core/context.h"
#include "raggrad/core/ragged.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor.h"

#pragma GCC visibility push(default)
namespace raggrad {

// Cuts a ragged tensor into its rows.
//
//   * batched_input, with splits: a vector of as many elements as rt_nested_splits[0] has rows. Element r has the other
//     levels of splits, beginning with 0, and the values of row r.
//   * batched_input, without splits: a vector of as many elements as rt_dense_values has rows. Element r has no splits
//     and the values rt_dense_values[r], of one rank less.
//   * otherwise: a scalar that has everything as it is.
//
// Shapes and types:
//   rt_nested_splits  [rows + 1] each, outermost first, all of one type; first 0, not decreasing, the last is the
//                     number of rows of the next level or of the values
//   rt_dense_values   any shape if there are no splits and nothing is cut, otherwise of rank 1 or more
//
// The result owns copies: however many elements there are, values and splits are copied once, into one tensor each
// (outputs 0 and 1 of the context's allocator), and elements are slices of them. Their description takes about 140
// bytes per element and 110 per level of its splits.
Result<VariantArray> RaggedTensorToVariant(std::span<const TensorView> rt_nested_splits,
                                           const TensorView& rt_dense_values, bool batched_input,
                                           const Context& ctx = {}) noexcept;

// Puts the elements of an array together. d is the rank of encoded_ragged; each element has `input_ragged_rank` levels
// of splits, and output_ragged_rank = input_ragged_rank + d. An input_ragged_rank of -1 is found from that.
//
//   * d = 0: the element as it is; its splits are not checked.
//   * d > 0: the result has d - 1 levels for the dimensions of the array, one for the lengths of its elements, and the
//     elements' own levels joined; then the elements' values joined. The elements' splits are not checked: the first
//     counts as 0 whatever it is, and sums wrap. Level i of the first d - 1 is 0, m, 2 m, ... with shape[i] + 1 numbers
//     and m = shape[i + 1]. If d > 2 that is TensorFlow's result but no ragged tensor, unless the dimensions before
//     shape[i] are 1: reshape the array to a vector, and split the result yourself.
//   * output_ragged_rank = 0 and input_ragged_rank = 0 or -1, d > 0: all values have one shape and are stacked,
//     [elements, shape...], whatever d is.
//
// Memory beyond the output: 16 bytes per element; for strings 32 more per worker.
Result<Ragged> RaggedTensorFromVariant(const VariantArrayView& encoded_ragged, int64_t input_ragged_rank,
                                       int64_t output_ragged_rank, DType values_dtype, DType splits_dtype,
                                       const Context& ctx = {}) noexcept;

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
//
// Memory beyond the output: 16 bytes per element and, for strings, 32 per worker.
Result<Tensor> RaggedTensorToVariantGradient(const VariantArrayView& encoded_ragged_grad, const TensorView& row_splits,
                                             const TensorView& dense_values_shape, DType values_dtype,
                                             const Context& ctx = {}) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
