// The innermost loops of the forwards for Accumulation::kReproducible: sums that have the same bits in every order.
// Compiled once per instruction-set level (cpu/isa_choice.h).
#pragma once

#include <cstdint>

#include "raggrad/core/sum_grid.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/cpu/exact_split.h"
#include "raggrad/ops/sparse_segment/forward/pool_rows.h"

namespace raggrad::sparse_segment {

// All run in the caller's floating-point environment.
template <class T>
struct PoolReproducibly {
  using A = SumType<T>;
  using Job = PoolJob<T>;

  // Pools all columns of the batch's rows.
  PoolSegmentsFunction<T> pool;
  // The largest finite magnitude in the rows that ids name, times their weights if there are any.
  A (*largest)(const Job& job, cpu::Span ids) noexcept;
  // Writes the sums of these products: [SumGrid<A>::kSums, width].
  void (*sum_part)(const Job& job, const SumGrid<A>& grid, cpu::Span ids, cpu::Span columns, double* sums) noexcept;
  // Divides and rounds the sums of a segment of `count` ids into output row `row`.
  void (*finish)(const Job& job, int64_t row, int64_t count, const SumGrid<A>& grid, const double* sums) noexcept;
};

using PoolReproduciblyLoops = cpu::PerType<PoolReproducibly, FloatTypes>;

template <Isa I>
const PoolReproduciblyLoops& PoolReproduciblyLoopsFor() noexcept;

}  // namespace raggrad::sparse_segment
