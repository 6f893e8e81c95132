// Sums of Accumulation::kReproducible in three steps, for terms that several processes have. Together they give the
// bits that one call with all terms would give, however the terms are divided.
//
//   1. Every process finds the largest magnitude and the number of its terms of each sum. The maximum of the magnitudes
//      and the sum of the numbers over all processes decide about the grid (core/sum_grid.h).
//   2. Every process rounds its terms to that grid and adds them in double. Such sums are exact, so they can be added
//      over processes in double in any order.
//   3. The total is divided and rounded once.
//
//   SplitTerms mine{table, indices, segment_ids};
//   Result<Tensor> largest = LargestSplitTerms(mine, num_segments);            // then: the maximum over processes
//   Result<Tensor> sums = SumSplitTerms(mine, all_largest, all_counts);        // then: the sum over processes
//   Result<Tensor> rows = RoundSplitSums(SegmentCombiner::kMean, DType::kFloat32, total, all_largest, all_counts);
//
// The term of id i is data[indices[i]] * factors[i], rounded to the type of sums (float32 for half and bfloat16, else
// the type of data). For a forward, data is the table. For a gradient it is the gradient of pooled rows; an index is a
// segment, a segment a row of the table, and a factor the scale of the segment.
//
//   data         [rows, inner...]           half, bfloat16, float32, float64; at least rank 1
//   indices      [n]                        int32 or int64, in [0, rows)
//   segment_ids  [n]                        int32 or int64, in [0, num_segments), ascending; num_segments < 2^31
//   factors      [n]                        in the type of sums; none: all are 1
//   largest      [num_segments]             in the type of sums; finite, not negative, 0 where there is no term
//   counts       [num_segments]             int64; at least 1 where there is a term, less than 2^48
//   sums         [num_segments, k * width]  float64; width: the product of the inner dimensions; k is 1, or 2 for
//                                           float64 data
//
// The bits depend neither on threads nor on the instruction set. Memory beyond the outputs: none. Operands on a GPU are
// UNIMPLEMENTED. Errors: as those of SparseSegment for ids; README.md has the others.
#pragma once

#include <optional>

#include "raggrad/core/context.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor.h"
#include "raggrad/core/tensor_view.h"
#include "raggrad/ops/sparse_segment/segment_pooling.h"

#pragma GCC visibility push(default)
namespace raggrad {

struct SplitTerms {
  TensorView data;
  TensorView indices;
  TensorView segment_ids;
  std::optional<TensorView> factors = {};
};

// out: [num_segments]
Result<Tensor> LargestSplitTerms(const SplitTerms& terms, int64_t num_segments, const Context& ctx = {}) noexcept;

// out: [num_segments, k * width]. Segments without a term here are +0. `largest` must be at least that of these terms,
// or the sums are not exact.
Result<Tensor> SumSplitTerms(const SplitTerms& terms, const TensorView& largest, const TensorView& counts,
                             const Context& ctx = {}) noexcept;

// out: [num_segments, width], of type `dtype`. The divisor is 1, counts, or their root; rows without terms are +0.
Result<Tensor> RoundSplitSums(SegmentCombiner combiner, DType dtype, const TensorView& sums, const TensorView& largest,
                              const TensorView& counts, const Context& ctx = {}) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
