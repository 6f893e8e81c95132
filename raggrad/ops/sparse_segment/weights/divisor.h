// D(s) of segment_pooling.h. Used by row loops that are compiled per instruction-set level, so everything is always
// inlined.
#pragma once

#include <cstdint>

#include "raggrad/ops/sparse_segment/segment_pooling.h"

namespace raggrad::sparse_segment {

[[gnu::always_inline]] inline float SquareRootOf(float x) noexcept { return __builtin_sqrtf(x); }
[[gnu::always_inline]] inline double SquareRootOf(double x) noexcept { return __builtin_sqrt(x); }

// The divisor of a segment of n ids, whatever their weights.
template <class A>
[[gnu::always_inline]] inline A CountDivisor(SegmentCombiner combiner, int64_t n) noexcept {
  if (combiner == SegmentCombiner::kMean) return static_cast<A>(n);
  if (combiner == SegmentCombiner::kSqrtN) return static_cast<A>(__builtin_sqrt(static_cast<double>(n)));
  return A{1};
}

// A weight's term of the sum that the divisor comes from.
template <class A>
[[gnu::always_inline]] inline A DivisorTerm(SegmentCombiner combiner, A weight) noexcept {
  return combiner == SegmentCombiner::kSqrtN ? weight * weight : weight;
}

// The divisor of that sum.
template <class A>
[[gnu::always_inline]] inline A WeightsDivisor(SegmentCombiner combiner, A sum) noexcept {
  return combiner == SegmentCombiner::kSqrtN ? SquareRootOf(sum) : sum;
}

// The divisor of the segment of ids [begin, end), left to right.
template <class A>
[[gnu::always_inline]] inline A DivisorOf(SegmentCombiner combiner, WeightDivisor divisor, const A* weights,
                                          int64_t begin, int64_t end) noexcept {
  if (combiner == SegmentCombiner::kSum || divisor == WeightDivisor::kCount) {
    return CountDivisor<A>(combiner, end - begin);
  }
  A sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += DivisorTerm(combiner, weights[i]);
  return WeightsDivisor(combiner, sum);
}

// x / divisor; 0 if the divisor is 0.
template <class A>
[[gnu::always_inline]] inline A Divide(A x, A divisor) noexcept {
  return divisor == A{0} ? A{0} : x / divisor;
}

}  // namespace raggrad::sparse_segment
