// Pooling of ids that are known to be in range. Internal to the family.
#pragma once

#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/plan/plan_cuda.cuh"

namespace raggrad::sparse_segment::on_cuda {

// Segment s has the ids [starts[s], starts[s + 1]), whatever ids p.segment_ids has; these are read for the divisors of
// weights only. p.indices is not read. p.n() > 0.
struct PoolIds {
  Ids indices;
  const int64_t* starts;  // [num_segments + 1]
  int64_t num_segments;
};

Status QueuePool(const cuda::Call& call, const ForwardProblem& p, const PoolIds& ids, Tensor& output) noexcept;

// The same for ids that ascend, in p.indices and p.segment_ids. Finds starts, unless p has them; p.n() may be 0.
Status PoolInto(const cuda::Call& call, const ForwardProblem& p, int64_t num_segments, Tensor& output) noexcept;

Result<Tensor> AllocateRows(const cuda::Call& call, const ForwardProblem& p, int64_t num_segments) noexcept;

// starts[s] = the first position whose segment is at least s. Each thread bisects, so that neither a long segment nor a
// long gap between segments is slow. If segments do not ascend, starts do nevertheless: a bisection for s + 1 goes
// where the one for s went, or to the right of it.
template <class Segments>
__global__ void StartsKernel(const Segments segments, int64_t n, int64_t num_segments, int64_t* starts) {
  const int64_t s = cuda::GlobalThread();
  if (s > num_segments) return;
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (segments[middle] < s) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  starts[s] = low;
}

// `segments` has operator[], on the device.
template <class Segments>
Result<Scratch<int64_t>> FindStarts(const cuda::Call& call, const Segments& segments, int64_t n,
                                    int64_t num_segments) noexcept {
  constexpr int kThreads = cuda::kTuning.item_threads_per_block;
  Result<Scratch<int64_t>> starts = Scratch<int64_t>::Make(call.device_memory(), num_segments + 1);
  if (!starts.ok()) return starts;
  const Status queued = call.Launch(StartsKernel<Segments>, cuda::Blocks(num_segments + 1, kThreads), kThreads,
                                    segments, n, num_segments, starts->data());
  if (!queued.ok()) return queued;
  return starts;
}

}  // namespace raggrad::sparse_segment::on_cuda
