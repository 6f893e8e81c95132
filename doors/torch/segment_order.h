// Positions of rows, ordered by the segment they belong to. Host memory only.
#pragma once

#include "raggrad/core/context.h"
#include "raggrad/core/scratch.h"

namespace raggrad::torch_door {

struct SegmentOrder {
  TensorView positions;    // ordered by segment; of one segment, ascending
  TensorView segment_ids;  // in this order
  Scratch<int32_t> memory;
};

// segment_ids: [n], int32 or int64, in [0, num_segments), any order. Takes 8 bytes per id, and 16 more while it sorts
// if the ids do not ascend.
Result<SegmentOrder> OrderBySegment(const TensorView& segment_ids, int64_t num_segments, const Context& ctx) noexcept;

}  // namespace raggrad::torch_door
