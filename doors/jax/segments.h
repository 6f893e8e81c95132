// Rows pooled by segment, and their gradients.
//
// Segment ids come in any order, and those out of range are dropped, as jax.ops.segment_sum does it. In host memory the
// handlers below order and drop. For a GPU, XLA does both before it calls the handlers whose names end in Ordered;
// Segment, Bag and the one that ends in Dropping need no help.
#pragma once

#include "adapter.h"

namespace raggrad::jax_door {

// data, segment_ids -> out. The first dimension of `out` is the number of segments, here and below.
Status Segment(Call& call);
// grad, segment_ids -> d_data
Status SegmentGrad(Call& call);

// table, ids, segment_ids[, weights] -> out
Status Bag(Call& call);
// grad, ids, segment_ids[, weights] -> d_table
Status BagGrad(Call& call);
Status BagGradOrdered(Call& call);
// grad, table, ids, segment_ids, weights -> d_weights. Only the type of the weights matters.
Status BagWeightsGrad(Call& call);
Status BagWeightsGradOrdered(Call& call);
// grad, ids, segment_ids[, weights] -> values, ids, report
Status BagGradRows(Call& call);
Status BagGradRowsDropping(Call& call);

}  // namespace raggrad::jax_door
