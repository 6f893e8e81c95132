// SparseSlice, which cuts a box out of a sparse tensor, and its gradient.
//
// The gradient --------------------------------------------------------------------------------------------------------
//
// The forward kept some entries of a sparse tensor, in their order, and moved their indices by -start. The gradient
// walks two cursors over the entries before (i) and after (j) the slice: where input_indices[i] == output_indices[j] +
// input_start in every column, val_grad[i] = backprop_val_grad[j] and j advances; otherwise val_grad[i] = 0. Bits are
// copied. The entries need not be sorted. Of equal entries the first ones match. The addition wraps in 64 bits.
//
// Shapes and types:
//   backprop_val_grad  [m]     half, bfloat16, float32, float64, [u]int8/16/32/64, complex64, complex128,
//                              qint8, quint8, qint32 (TensorFlow lists these three but cannot compute them)
//   input_indices      [n, d]  int64
//   input_start        [d]     int64. Always in host memory.
//   output_indices     [m, d]  int64, m <= n
//
// INTERNAL (TensorFlow's code) if an element of backprop_val_grad finds no entry of the input.
// Memory beyond the output: 64 bytes per worker; on a GPU a bit per entry and 8 bytes per 1024 of them.
// On a GPU (cuda/cuda.h) the cursor is guessed, which is right if the output is what a slice keeps of the input. If it
// is not, the operands are copied to the host and walked there.
// Errors: README.md beside this file has the table. Nothing is written on failure.
#pragma once

#include "raggrad/core/context.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor.h"
#include "raggrad/core/tensor_view.h"
#include "raggrad/ops/padded.h"

#pragma GCC visibility push(default)
namespace raggrad {

// val_grad: [n], in the type of backprop_val_grad.
Result<Tensor> SparseSliceGrad(const TensorView& backprop_val_grad, const TensorView& input_indices,
                               const TensorView& input_start, const TensorView& output_indices,
                               const Context& ctx = {}) noexcept;

// The forward ---------------------------------------------------------------------------------------------------------
//
// Keeps the entries with start <= index < start + size in every column, in their order, and moves their indices by
// -start. Bits are copied. Indices need not be sorted and are not compared with `shape`.
//
//   output_shape[c] = size[c]              if the box ends before shape[c]
//                   = shape[c] - start[c]  if it begins before shape[c]
//                   = 0                    if it lies behind; then a negative size is accepted, too
//
// A negative start is accepted, and output_shape[c] then counts from there.
//
// Shapes and types:
//   indices             [n, d]  int64, d <= 254; d = 0 keeps everything
//   values              [n]     half, bfloat16, float32, float64, [u]int8/16/32/64, complex64, complex128, bool, string
//   shape, start, size  [d]     int64. Always in host memory.
//
// Memory beyond the outputs: one bit per entry and 32 bytes per worker; for strings also 16 bytes per kept entry. On a
// GPU one bit per entry and 8 bytes per 1024 of them. Strings are UNIMPLEMENTED there.

struct SparseSliceOutput {
  Tensor output_indices;  // [kept, d]
  Tensor output_values;   // [kept]
  Tensor output_shape;    // [d]. Always in host memory.
};

Result<SparseSliceOutput> SparseSlice(const TensorView& indices, const TensorView& values, const TensorView& shape,
                                      const TensorView& start, const TensorView& size,
                                      const Context& ctx = {}) noexcept;

// SparseSlice with room for max_kept entries (ops/padded.h): never waits for a GPU, and can be captured. CheckPadded
// returns the number of entries that are kept.
struct SparseSlicePaddedOutput {
  Tensor output_indices;  // [max_kept, d]: the entries' indices, then (output_shape[0], 0, 0, ...)
  Tensor output_values;   // [max_kept]: their values, then zeros
  Tensor output_shape;    // [d]. Always in host memory.
  Tensor report;          // [6] uint64
};

Result<SparseSlicePaddedOutput> SparseSlicePadded(const TensorView& indices, const TensorView& values,
                                                  const TensorView& shape, const TensorView& start,
                                                  const TensorView& size, int64_t max_kept,
                                                  const Context& ctx = {}) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
