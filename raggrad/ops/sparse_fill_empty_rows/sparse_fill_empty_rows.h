// Gradient of SparseFillEmptyRows and RaggedFillEmptyRows.
//
// The forward put entry i of its input at place reverse_index_map[i] of its output and a default value at all other
// places. Backwards:
//
//   d_values[i]     = grad_values[reverse_index_map[i]]                        bits copied
//   d_default_value = sum of grad_values[j] over every j that the map does not name
//
// The sum is one running sum in the values' own type, j ascending, starting at +0: half and bfloat16 round at every
// step, integers wrap, complex adds its parts separately, float32 and float64 subnormals are flushed to zero. These are
// TensorFlow's bits, for any number of threads. Accumulation::kFast sums blocks of 4096 such values left to right
// in float32 (for half and bfloat16) or the own type, then the blocks pairwise, and rounds once.
//
// Shapes and types:
//   reverse_index_map  [n]       int64, in [0, n_full), any order, repeats allowed
//   grad_values        [n_full]  half, bfloat16, float32, float64, [u]int8/16/32/64, complex64, complex128
//
// Memory beyond the outputs: the values that the map does not name; if it does not ascend, also a bit per element of
// grad_values for each worker, at most 16 of them (kFast: and 16 bytes per 4096 values).
// Errors: README.md beside this file has the table. Nothing is written on failure.
#pragma once

#include "raggrad/core/context.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor.h"
#include "raggrad/core/tensor_view.h"

#pragma GCC visibility push(default)
namespace raggrad {

struct FillEmptyRowsGradOutput {
  Tensor d_values;         // [n]
  Tensor d_default_value;  // []
};

Result<FillEmptyRowsGradOutput> SparseFillEmptyRowsGrad(const TensorView& reverse_index_map,
                                                        const TensorView& grad_values,
                                                        const Context& ctx = {}) noexcept;

// The same operator under its ragged name.
Result<FillEmptyRowsGradOutput> RaggedFillEmptyRowsGrad(const TensorView& reverse_index_map,
                                                        const TensorView& grad_values,
                                                        const Context& ctx = {}) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
