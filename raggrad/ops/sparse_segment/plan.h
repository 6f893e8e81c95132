// Everything about a gradient that depends only on indices and segment ids: checked, sorted by row, counted.
#pragma once

#include <cmath>

#include "raggrad/core/scratch.h"
#include "raggrad/ops/sparse_segment/contribution.h"
#include "raggrad/ops/sparse_segment/kernels.h"

namespace raggrad::sparse_segment {

template <class C>  // Contribution or WideContribution
struct Plan {
  Scratch<C> contributions;     // sorted by row; within a row in the order of the input
  Scratch<int64_t> row_starts;  // where each unique row's contributions begin; one more entry, the end
  int64_t rows = 0;             // unique rows
  Scratch<int64_t> counts;      // ids per segment; empty if it was not asked for
  Scratch<float> mean_scales;   // what Mean multiplies each contribution by, in float; only in a SegmentPlan
};

// What contributions of a segment with `count` ids are multiplied by: rounded once, from double.
template <class A>
A ScaleOf(SegmentCombiner combiner, int64_t count) noexcept {
  const auto ids = static_cast<double>(count);
  return static_cast<A>(1.0 / (combiner == SegmentCombiner::kMean ? ids : std::sqrt(ids)));
}

// Scratch while it runs: 2 sizeof(C) per id, 8 per unique row, 8 per segment if they are counted, the radix sort's
// counters. Few ids of a small table: 4 per row of the table, at most sizeof(C) per id, instead of the second sizeof(C)
// and the counters. n, dim0 > 0.
template <class C>
Result<Plan<C>> MakePlan(const Problem& problem, bool count_segments, const Context& ctx) noexcept;

}  // namespace raggrad::sparse_segment
