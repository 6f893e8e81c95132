// Divisors, and the factor w(i) / D(s) of each contribution of a weighted gradient (segment_pooling.h), in device
// memory.
#pragma once

#include "raggrad/cuda/call.cuh"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/plan/device_plan.h"

namespace raggrad::sparse_segment::on_cuda {

// Queues the factors of the plan's contributions, in the plan's order; empty without weights. `order` is that of
// segment ids, or what it is assumed to be: then factors are wrong where the assumption is, and nothing else is.
// `unfinished` is null, or the plan itself if its contributions have positions in place of segments: these are put
// back, and the positions kept. Memory: a factor per id, and meanwhile a segment and a factor. Mean and SqrtN with
// WeightDivisor::kWeights also need a divisor per segment and, unless segment ids ascend, a sort of the ids by segment,
// which kernels skip if they find that they ascend: as much memory as a plan.
template <class A>
Result<Scratch<A>> QueueFactors(const cuda::Call& call, const GradProblem& p, const Plan& plan, SegmentTrend order,
                                Plan* unfinished) noexcept;

// Queues D(s) of every segment of a forward that has ids, for valid ids; empty if the weights are not the divisors.
template <class A>
Result<Scratch<A>> QueueDivisors(const cuda::Call& call, const ForwardProblem& p, int64_t num_segments) noexcept;

}  // namespace raggrad::sparse_segment::on_cuda
