// Gradient of SparseSlice.
//
// The forward kept some entries of a sparse tensor, in their order, and moved their indices by -start. Backwards, two
// cursors walk over the entries before (i) and after (j): where input_indices[i] == output_indices[j] + input_start in
// every column, val_grad[i] = backprop_val_grad[j] and j advances; otherwise val_grad[i] = 0. Bits are copied. The
// entries need not be sorted, and with duplicates the first match wins; the addition wraps in 64 bits.
//
// Shapes and types:
//   backprop_val_grad  [m]     half, bfloat16, float32, float64, [u]int8/16/32/64, complex64, complex128,
//                              qint8, quint8, qint32 (TensorFlow lists these three but cannot compute them)
//   input_indices      [n, d]  int64
//   input_start        [d]     int64. Always in host memory.
//   output_indices     [m, d]  int64, m <= n
//
// INTERNAL (TensorFlow's code) if some of backprop_val_grad finds no entry of the input.
// Memory beyond the output: 64 bytes per worker.
// Errors: README.md beside this file has the table. Nothing is written on failure.
#pragma once

#include "raggrad/core/context.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor.h"
#include "raggrad/core/tensor_view.h"

#pragma GCC visibility push(default)
namespace raggrad {

// val_grad: [n], in the type of backprop_val_grad.
Result<Tensor> SparseSliceGrad(const TensorView& backprop_val_grad, const TensorView& input_indices,
                               const TensorView& input_start, const TensorView& output_indices,
                               const Context& ctx = {}) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
