// All combiners of segments, for tests that try each of them.
#pragma once

#include "raggrad/ops/sparse_segment/segment_pooling.h"

namespace raggrad::testing {

inline constexpr SegmentCombiner kCombiners[] = {SegmentCombiner::kSum, SegmentCombiner::kMean,
                                                 SegmentCombiner::kSqrtN};

}  // namespace raggrad::testing
