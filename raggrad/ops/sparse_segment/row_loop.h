// The innermost loop: sums the contributions of rows. Compiled once per instruction-set level.
#pragma once

#include <cstdint>

#include "raggrad/core/dtype.h"
#include "raggrad/core/isa.h"
#include "raggrad/ops/sparse_segment/contribution.h"

namespace raggrad::sparse_segment {

template <class T, class C>
struct RowJob {
  const T* grad;  // [segments, width]
  int64_t width;
  const C* contributions;  // sorted by row
  int64_t num_contributions;
  const int64_t* row_starts;  // [rows + 1]
  const double* scales;       // per segment, or null for 1
  T* output;
  bool dense;     // row u goes to output row contributions[row_starts[u]].row instead of u
  bool pairwise;  // Accumulation::kFast
};

// Rows [row_begin, row_end), columns [column_begin, column_end). Sets the floating-point mode itself.
template <Isa I, class T, class C>
void SumRows(const RowJob<T, C>& job, int64_t row_begin, int64_t row_end, int64_t column_begin,
             int64_t column_end) noexcept;

template <class T, class C>
using SumRowsFunction = decltype(&SumRows<Isa::kX86V1, T, C>);

}  // namespace raggrad::sparse_segment
