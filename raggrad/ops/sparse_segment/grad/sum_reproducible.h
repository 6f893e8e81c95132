// The innermost loops of Accumulation::kReproducible: sums that have the same bits in every order. Compiled once per
// instruction-set level (cpu/isa_choice.h).
#pragma once

#include <cstdint>

#include "raggrad/core/sum_grid.h"
#include "raggrad/cpu/exact_split.h"
#include "raggrad/ops/sparse_segment/grad/sum_rows.h"
#include "raggrad/ops/sparse_segment/magnitudes.h"

namespace raggrad::sparse_segment {

// A row of the gradient. Factor and magnitudes lie together, because both are looked up in random order.
template <class A>
struct SegmentRow {
  A factor;                  // of the row's contributions, unless these have their own
  Magnitudes<A> magnitudes;  // of the row times the factor
};

template <class T, class C>
struct ReproducibleJob {
  SumJob<T, C> sum;
  const SegmentRow<SumType<T>>* rows;  // [num_segments], or null: not known
};

// All run in the caller's floating-point environment.
template <class T, class C>
struct ReproducibleFunctions {
  using A = SumType<T>;
  using Job = ReproducibleJob<T, C>;

  // Sums rows [row_begin, row_end) into the sink.
  void (*sum_rows)(const Job& job, int64_t row_begin, int64_t row_end) noexcept;
  // The largest finite magnitude of contributions.
  A (*largest)(const Job& job, cpu::Span contributions) noexcept;
  // Writes the sums of a row's contributions: [SumGrid<A>::kSums, width].
  void (*sum_part)(const Job& job, const SumGrid<A>& grid, cpu::Span contributions, cpu::Span columns,
                   double* sums) noexcept;
  // Rounds the sums of a row into the sink.
  void (*finish)(const Job& job, int64_t row, const SumGrid<A>& grid, const double* sums) noexcept;
};

template <class T>
struct ReproducibleLoopsOf {
  // Describes rows of the gradient. Null scales: all are 1.
  void (*describe)(const T* rows, int64_t count, int64_t width, const SumType<T>* scales,
                   SegmentRow<SumType<T>>* out) noexcept;
  ReproducibleFunctions<T, Contribution> narrow;
  ReproducibleFunctions<T, WideContribution> wide;  // empty above the baseline level: see ChooseLoops

  template <class C>
  const ReproducibleFunctions<T, C>& with() const noexcept {
    if constexpr (std::is_same_v<C, Contribution>) {
      return narrow;
    } else {
      return wide;
    }
  }
};

using ReproducibleLoops = cpu::PerType<ReproducibleLoopsOf, FloatTypes>;

template <Isa I>
const ReproducibleLoops& ReproducibleLoopsFor() noexcept;

}  // namespace raggrad::sparse_segment
