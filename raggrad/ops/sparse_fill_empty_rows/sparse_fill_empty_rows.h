// SparseFillEmptyRows and RaggedFillEmptyRows, which give every row at least one entry, and their gradient.
//
// The gradient --------------------------------------------------------------------------------------------------------
//
// The forward put entry i of its input at place reverse_index_map[i] of its output and a default value at all other
// places. The gradient is:
//
//   d_values[i]     = grad_values[reverse_index_map[i]]                        bits copied
//   d_default_value = sum of grad_values[j] over every j that the map does not name
//
// The sum is one running sum in the values' own type, j ascending, starting at +0: half and bfloat16 round at every
// step, integers wrap, complex adds its parts separately, float32 and float64 subnormals are flushed to zero. These are
// TensorFlow's bits, for any number of threads. Accumulation::kFast sums blocks of 4096 such values left to right
// in float32 (for half and bfloat16) or the own type, then the blocks pairwise, and rounds once. On a GPU, where kFast
// is the default, its tree is over all places, and named ones count as +0. kSequential is slow on any GPU: one thread
// makes the running sum. Accumulation::kReproducible gives the same bits for every order of the values
// (core/sum_grid.h), on CPU and GPU.
//
// Shapes and types:
//   reverse_index_map  [n]       int64, in [0, n_full), any order, repeats allowed
//   grad_values        [n_full]  half, bfloat16, float32, float64, [u]int8/16/32/64, complex64, complex128
//
// Memory beyond the outputs: the values that the map does not name; if it does not ascend, also a bit per element of
// grad_values for each of at most 16 workers; with kFast also 16 bytes per 4096 values. On a GPU: a bit per element of
// grad_values, and at most 16 bytes per 4096 of them.
// Errors: README.md beside this file has the table. Nothing is written on failure.
#pragma once

#include "raggrad/core/context.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor.h"
#include "raggrad/core/tensor_view.h"
#include "raggrad/ops/padded.h"

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

// The forwards --------------------------------------------------------------------------------------------------------
//
// Entries are ordered by their row, and within a row as they came. A row without entries gets one with the default
// value, at index (row, 0, 0, ...). Bits are copied. Only column 0 of the indices and the first element of dense_shape
// are used; the others may be anything.
//
// Shapes and types:
//   indices        [n, d]  int64, d >= 1, column 0 in [0, dense_shape[0]), any order, repeats allowed
//   values         [n]     half, bfloat16, float32, float64, [u]int8/16/32/64, complex64, complex128, bool, string
//   dense_shape    [d]     int64. Always in host memory.
//   default_value  []      the type of values
//
// Memory beyond the outputs: 96 bytes per worker if the rows ascend; otherwise 16 bytes per entry (32 beyond 2^32
// entries or rows) and at most 8 KiB per 16384 entries. Strings take 16 bytes per value of the output, too. On a GPU: 8
// bytes per row, and 17 bytes per entry (33) if the rows do not ascend, or if the result is padded. Strings are
// UNIMPLEMENTED on a GPU.

struct SparseFillEmptyRowsOutput {
  Tensor output_indices;       // [n_full, d]; n_full is n plus the number of empty rows
  Tensor output_values;        // [n_full]
  Tensor empty_row_indicator;  // [dense_shape[0]], bool
  Tensor reverse_index_map;    // [n]: the place of every entry in the output
};

Result<SparseFillEmptyRowsOutput> SparseFillEmptyRows(const TensorView& indices, const TensorView& values,
                                                      const TensorView& dense_shape, const TensorView& default_value,
                                                      const Context& ctx = {}) noexcept;

// SparseFillEmptyRows with room for max_full entries (ops/padded.h): never waits for a GPU, and can be captured. n plus
// the number of rows is always room enough. CheckPadded returns n_full.
struct SparseFillEmptyRowsPaddedOutput {
  Tensor output_indices;       // [max_full, d]: the entries' indices, then (dense_shape[0], 0, 0, ...)
  Tensor output_values;        // [max_full]: their values, then zeros
  Tensor empty_row_indicator;  // [dense_shape[0]], bool
  Tensor reverse_index_map;    // [n]
  Tensor report;               // [6] uint64
};

Result<SparseFillEmptyRowsPaddedOutput> SparseFillEmptyRowsPadded(const TensorView& indices, const TensorView& values,
                                                                  const TensorView& dense_shape,
                                                                  const TensorView& default_value, int64_t max_full,
                                                                  const Context& ctx = {}) noexcept;

struct RaggedFillEmptyRowsOutput {
  Tensor output_value_rowids;  // [n_full]; but [0, 1] if nrows is 0, as TensorFlow has it
  Tensor output_values;        // [n_full]
  Tensor empty_row_indicator;  // [nrows], bool
  Tensor reverse_index_map;    // [n]
};

// The same with one column: value_rowids [n], int64, in [0, nrows); nrows [], int64, always in host memory.
Result<RaggedFillEmptyRowsOutput> RaggedFillEmptyRows(const TensorView& value_rowids, const TensorView& values,
                                                      const TensorView& nrows, const TensorView& default_value,
                                                      const Context& ctx = {}) noexcept;

struct RaggedFillEmptyRowsPaddedOutput {
  Tensor output_value_rowids;  // [max_full], also if nrows is 0: the row ids, then nrows
  Tensor output_values;        // [max_full]: the values, then zeros
  Tensor empty_row_indicator;  // [nrows], bool
  Tensor reverse_index_map;    // [n]
  Tensor report;               // [6] uint64
};

Result<RaggedFillEmptyRowsPaddedOutput> RaggedFillEmptyRowsPadded(const TensorView& value_rowids,
                                                                  const TensorView& values, const TensorView& nrows,
                                                                  const TensorView& default_value, int64_t max_full,
                                                                  const Context& ctx = {}) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
