// Ragged tensors as arrays of variants. One operator cuts a batch into an array of pieces, one joins such an array
// again, and one joins the gradients of the pieces into the gradient of the values. Bits are copied, nothing is
// computed.
//
//   const TensorView splits[] = {TensorView::Vector(rows)};
//   Result<VariantArray> pieces = RaggedTensorToVariant(splits, values, /*batched_input=*/true);
//   Result<Ragged> back = RaggedTensorFromVariant(pieces->view(), -1, 1, values.dtype, splits[0].dtype);
//
// The 21 ragged types are half, bfloat16, float32, float64, [u]int8...64, complex64, complex128, bool, string and the
// quantized ones. Splits are int32 or int64. A string result is one allocation: the characters follow the elements
// (core/dtype.h).
//
// Values may be in device memory (cuda/cuda.h), except strings. The splits of elements and of results are always in
// host memory, because they decide about shapes. row_splits and rt_nested_splits may be in either; those in device
// memory are copied to the host first. Calls return when the copy of the values has been queued.
//
// README.md beside this file lists the errors. A call that fails writes nothing.
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
//   * batched_input, with splits: a vector with one element per row of rt_nested_splits[0]. Element r has the values of
//     row r, and its part of the other levels of splits, each moved to begin with 0.
//   * batched_input, without splits: a vector with one element per row of rt_dense_values. Element r has no splits and
//     the values rt_dense_values[r], of one rank less.
//   * not batched_input: a scalar, whose one element is the ragged tensor itself.
//
// Shapes and types:
//   rt_nested_splits  [rows + 1] each, outermost first, all of one type; first 0, not decreasing, the last is the
//                     number of rows of the next level or of the values
//   rt_dense_values   of rank 1 or more; also a scalar if there are no splits and no batched_input
//
// The result owns its memory. Values and splits are copied once, into one tensor each (outputs 0 and 1 of the context's
// allocator), and elements are slices of these. An element takes 96 bytes, and 72 for each level of its splits.
Result<VariantArray> RaggedTensorToVariant(std::span<const TensorView> rt_nested_splits,
                                           const TensorView& rt_dense_values, bool batched_input,
                                           const Context& ctx = {}) noexcept;

// Joins the elements of an array of rank d into one ragged tensor. Each element has input_ragged_rank levels of splits,
// and output_ragged_rank = input_ragged_rank + d. An input_ragged_rank of -1 is found from that.
//
//   * d = 0: the result is a copy of the element. Its splits are not checked.
//   * d > 0: the result has d - 1 levels for the dimensions of the array, one level for the lengths of its elements,
//     and the elements' own levels joined. Its values are the elements' values joined. The elements' splits are not
//     checked: the first counts as 0 whatever it is, and sums wrap around. Level i of the first d - 1 is 0, m, 2 m, ...
//     with shape[i] + 1 numbers and m = shape[i + 1]. If d > 2 that is TensorFlow's result but not a valid ragged
//     tensor, unless the dimensions before shape[i] are 1. To get a valid one, reshape the array to a vector, and split
//     the result yourself.
//   * output_ragged_rank = 0, input_ragged_rank = 0 or -1, d > 0: the values, which must all have one shape, are
//     stacked to [elements, shape...], whatever d is.
//
// Memory beyond the output: 16 bytes per element, and for strings 32 per worker.
Result<Ragged> RaggedTensorFromVariant(const VariantArrayView& encoded_ragged, int64_t input_ragged_rank,
                                       int64_t output_ragged_rank, DType values_dtype, DType splits_dtype,
                                       const Context& ctx = {}) noexcept;

// Gradient of RaggedTensorToVariant: joins the gradients of the pieces into the gradient of the dense values.
//
// The result is the values of the elements, one after the other, in row-major order of the array. Splits inside an
// element are ignored. A missing element i stands for zeros (empty strings) of shape
// [row_splits[i+1] - row_splits[i]] + dense_values_shape[1:].
//
//   * Exactly one element: the result is a copy of its values, in their own shape; dense_values_shape is not used. If
//     the element is missing, the result is its zeros, of shape dense_values_shape if row_splits is a scalar.
//   * Otherwise the result has the shape dense_values_shape, and the elements must fill it exactly.
//
// Shapes and types:
//   encoded_ragged_grad  any shape   elements of dtype `values_dtype`
//   row_splits           [rows + 1]  int32 or int64: first 0, not decreasing; or a scalar, which is ignored
//   dense_values_shape   [rank]      int32, always in host memory
//
// Memory beyond the output: 16 bytes per element, and for strings 32 per worker.
Result<Tensor> RaggedTensorToVariantGradient(const VariantArrayView& encoded_ragged_grad, const TensorView& row_splits,
                                             const TensorView& dense_values_shape, DType values_dtype,
                                             const Context& ctx = {}) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
