// The end of the row loops of an update. Compiled per instruction-set level.
#pragma once

#include "raggrad/ops/sparse_segment/grad/sum_rows.h"
#include "raggrad/ops/sparse_segment/row_ops.h"

namespace raggrad::sparse_segment {

inline constexpr int64_t kRowsAhead = 6;  // table rows between a prefetch and its update

// The update sees the value that a stored gradient has when read back: rounded, and without minus zero.
template <Isa I, class T, class C>
[[gnu::always_inline]] inline void Update(const SumJob<T, C>& job, int64_t row, int64_t column, int64_t columns,
                                          SumType<T>* sums) noexcept {
  if constexpr (kIsShortFloat<T>) {
    T rounded[kStrip<SumType<T>>];
    Store<I>(sums, rounded, columns);
    cpu::Convert<I>::WidenRow(rounded, sums, columns);
  }
  for (int64_t c = 0; c < columns; ++c) sums[c] += SumType<T>{0};
  const OptimizerJob<SumType<T>>& optimizer = *job.sink.optimizer;
  if (row + kRowsAhead < job.num_unique) {
    optimizer.prefetch(optimizer, job.table_row(row + kRowsAhead), column, columns);
  }
  optimizer.step(optimizer, job.table_row(row), column, columns, sums);
}

}  // namespace raggrad::sparse_segment
