// The innermost loop: sums the contributions of rows. Compiled once per instruction-set level.
#pragma once

#include <cstdint>

#include "raggrad/core/dtype.h"
#include "raggrad/core/isa.h"
#include "raggrad/ops/sparse_segment/contribution.h"
#include "raggrad/ops/sparse_segment/update_loop.h"

namespace raggrad::sparse_segment {

template <class T, class C>
struct RowJob {
  const T* grad;  // [segments, width]
  int64_t width;
  const C* contributions;  // sorted by row
  int64_t num_contributions;
  const int64_t* row_starts;  // [rows + 1]
  int64_t num_rows;
  const SumType<T>* scales;  // per segment, or null for 1
  // The same per contribution, if they are at hand: then those per segment need not be looked up in random order.
  const SumType<T>* contribution_scales;
  bool pairwise;  // Accumulation::kFast
  T* output;
  bool dense;  // row u goes to output row contributions[row_starts[u]].row instead of u
  const UpdateJob<SumType<T>>* update = nullptr;  // if set, rows go there, rounded to T, and not to the output

  [[gnu::always_inline]] int64_t row_number(int64_t row) const noexcept {
    return static_cast<int64_t>(contributions[row_starts[row]].row);
  }
};

// Rows [row_begin, row_end), columns [column_begin, column_end). Sets the floating-point mode itself.
template <Isa I, class T, class C>
void SumRows(const RowJob<T, C>& job, int64_t row_begin, int64_t row_end, int64_t column_begin,
             int64_t column_end) noexcept;

template <class T, class C>
using SumRowsFunction = decltype(&SumRows<Isa::kX86V1, T, C>);

}  // namespace raggrad::sparse_segment
