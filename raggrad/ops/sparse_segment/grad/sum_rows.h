// The innermost loop: sums the contributions of rows. Compiled once per instruction-set level (cpu/isa_choice.h).
#pragma once

#include <cstdint>

#include "raggrad/core/context.h"
#include "raggrad/core/dtype.h"
#include "raggrad/core/isa.h"
#include "raggrad/cpu/isa_choice.h"
#include "raggrad/ops/sparse_segment/plan/contribution.h"
#include "raggrad/ops/sparse_segment/update/optimizer_step.h"

namespace raggrad::sparse_segment {

// Where finished rows go.
template <class T>
struct RowSink {
  T* output = nullptr;
  bool dense = false;                                   // true: to their table rows; false: one after the other
  const OptimizerJob<SumType<T>>* optimizer = nullptr;  // if set, rows go there, rounded to T, instead of the output
};

template <class T, class C>
struct SumJob {
  const T* grad;  // [num_segments, width]
  int64_t width;
  const C* contributions;  // sorted by row
  int64_t num_contributions;
  const int64_t* row_starts;  // [num_unique + 1]
  int64_t num_unique;
  const SumType<T>* scales;  // per segment, or null for 1
  // The same per contribution, or null. They save looking up those per segment in random order.
  const SumType<T>* contribution_scales;
  Accumulation accumulation;
  RowSink<T> sink;

  [[gnu::always_inline]] int64_t table_row(int64_t row) const noexcept {
    return static_cast<int64_t>(contributions[row_starts[row]].row);
  }
};

// Sums rows [row_begin, row_end), columns [column_begin, column_end), in the caller's floating-point environment.
template <class T, class C>
using SumRowsFunction = void (*)(const SumJob<T, C>& job, int64_t row_begin, int64_t row_end, int64_t column_begin,
                                 int64_t column_end) noexcept;

template <class T>
struct SumLoopsOf {
  SumRowsFunction<T, Contribution> narrow;
  SumRowsFunction<T, WideContribution> wide;  // null above the baseline level

  template <class C>
  SumRowsFunction<T, C> sum() const noexcept {
    if constexpr (std::is_same_v<C, Contribution>) {
      return narrow;
    } else {
      return wide;
    }
  }
};

using SumLoops = cpu::PerType<SumLoopsOf, FloatTypes>;

template <Isa I>
const SumLoops& SumLoopsFor() noexcept;

// As cpu::ChooseByIsa. Wide contributions always get the baseline's loops: only gradients of 2^32 rows have them, and
// instances per level would double the time to compile the loops.
template <class C, class F>
auto ChooseLoops(const Context& ctx, const F& of_level) noexcept {
  auto loops = cpu::ChooseByIsa(ctx, of_level);
  if constexpr (std::is_same_v<C, WideContribution>) {
    if (loops.ok()) *loops = of_level.template operator()<kBaselineIsa>();
  }
  return loops;
}

}  // namespace raggrad::sparse_segment
