// A plan in host memory: ids that have been checked, sorted by row and counted.
#pragma once

#include <cmath>

#include "raggrad/core/function_ref.h"
#include "raggrad/core/scratch.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/plan/contribution.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::sparse_segment {

template <class C>  // Contribution or WideContribution
struct Plan {
  Scratch<C> contributions;     // sorted by row; within a row in the order of the input
  Scratch<int64_t> row_starts;  // [num_unique + 1]: where each unique row's contributions begin, and the end
  int64_t num_unique = 0;
  Scratch<int64_t> counts;      // ids per segment; empty if nobody asked for them
  Scratch<uint32_t> positions;  // of each contribution in the caller's ids; empty if nobody asked for them
  Scratch<float> mean_scales;   // Mean's factor of each contribution, in float; only in a SegmentPlan

  int64_t table_row(int64_t unique) const noexcept { return int64_t{contributions[row_starts[unique]].row}; }
};

// The factor of contributions of a segment with `count` ids, computed in double and rounded once.
template <class A>
A ScaleOf(SegmentCombiner combiner, int64_t count) noexcept {
  const auto ids = static_cast<double>(count);
  return static_cast<A>(1.0 / (combiner == SegmentCombiner::kMean ? ids : std::sqrt(ids)));
}

// The parts of a plan that not every call needs.
struct PlanParts {
  bool counts = false;
  bool positions = false;  // contributions have positions in place of segments; for fewer than 2^32 ids
};

// Numbers of ids that come into the order of the contributions while these are sorted, in 2 to 3 ns each. A look-up in
// random order for each contribution would take 4 to 5 ns on one thread.
template <class A>
struct Carried {
  // Returns them in the order of the ids, which are checked and counted by then.
  FunctionRef<Result<Scratch<A>>(const int64_t* counts)> make;
  Scratch<A> sorted;  // the result
};

// Checks, sorts and counts ids; n and table_rows must be > 0. Scratch while it runs: 2 sizeof(C) bytes per id, 8 per
// unique row, 8 per segment if segments are counted, and the radix sort's. Few ids of a small table are sorted by
// counting: that takes 4 bytes per table row, at most sizeof(C) per id, instead of the second sizeof(C) and the radix
// sort's. What is carried takes twice its size.
template <class C, class A = float>
Result<Plan<C>> MakePlan(const SegmentIds& ids, const PlanParts& parts, const Context& ctx,
                         Carried<A>* carried = nullptr) noexcept;

// Moves the positions out of the contributions, which get their segments instead. Takes 4 bytes per id, which the plan
// keeps, and reads segment ids in random order: about 6 ns each.
Status KeepPositions(const SegmentIds& ids, const Context& ctx, Plan<Contribution>& plan) noexcept;

}  // namespace raggrad::sparse_segment
