// A group of contributions in shared memory: where its rows begin, their segments and their factors.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "raggrad/cuda/device.cuh"
#include "raggrad/ops/sparse_segment/grad/sum_job.cuh"

namespace raggrad::sparse_segment::on_cuda {

// Neighbours in shared memory, loaded at once.
template <class V>
struct alignas(kBatch * sizeof(V)) Batch {
  V of[kBatch];
  static __device__ Batch Of(const V* values) { return *reinterpret_cast<const Batch*>(values); }
};

// The factor of a contribution. Until LoadScales replaces it: the number of ids in its segment, if that decides.
template <class A>
union Scale {
  A factor;
  uint32_t count;
};

// A group of contributions, in shared memory.
template <class A>
struct Group {
  // Tiles are padded, so that teams read from different banks, by a batch, so that batches of segments are aligned.
  alignas(kBatch * sizeof(uint32_t)) uint32_t segments[kTiles][kTile + kBatch];  // 0 where there is no contribution
  Scale<A> scales[kTiles][kTile + kBatch];                                       // the same
  uint32_t rows[kContributionsPerGroup];
  // Bit i of tile t is set if a row begins at contribution i, or if there is no such contribution, which ends the row
  // before it as well. The last word has only bit 0, of the next group's first contribution.
  uint32_t begins[kTiles + 1];
  uint32_t unique_before[kTiles];  // rows that begin in earlier tiles of the group; only for tiles with contributions

  // Whether the last row of the tile extends into the next.
  __device__ bool GoesOn(int tile) const { return (begins[tile + 1] & 1) == 0; }
};

// Calls f(k) for each contribution k of a group. By all threads of the block, whose number divides
// kContributionsPerGroup.
template <class F>
__device__ void ForEachInGroup(const F& f) {
  for (int k = static_cast<int>(threadIdx.x); k < kContributionsPerGroup; k += static_cast<int>(blockDim.x)) f(k);
}

// Loads all of a group but scales and unique_before. Calls look_up(k, i, segment) for each contribution i, the k-th of
// the group, as soon as its segment is known. That starts copies into shared memory, which run beside the loads of the
// gradient and take as long: whole calls got 1 to 3 % shorter. All copies of a thread are one batch for
// __pipeline_wait_prior.
template <class T, class F>
__device__ void LoadGroup(const SumJob<T>& job, int64_t first, Group<SumType<T>>& group, const F& look_up) {
  ForEachInGroup([&](int k) {
    const int64_t i = first + k;
    const bool exists = i < job.n;
    const Contribution contribution = exists ? job.contributions[i] : Contribution{};
    if (exists) look_up(k, i, contribution.segment);
    uint32_t row_before = __shfl_up_sync(~0U, contribution.row, 1);  // a warp has exactly one tile
    if (k % kTile == 0 && exists && i > 0) row_before = job.contributions[i - 1].row;
    const uint32_t mask = __ballot_sync(~0U, !exists || i == 0 || row_before != contribution.row);
    if (k % kTile == 0) group.begins[k / kTile] = mask;
    group.rows[k] = contribution.row;
    group.segments[k / kTile][k % kTile] = contribution.segment;
  });
  __pipeline_commit();
  if (threadIdx.x == 0) {
    const int64_t next = first + kContributionsPerGroup;
    group.begins[kTiles] = next >= job.n || job.contributions[next].row != job.contributions[next - 1].row ? 1 : 0;
  }
  __syncthreads();
}

// The number of rows that begin in earlier tiles of a loaded group. Called by all lanes of a warp.
template <class A>
__device__ uint32_t UniqueBefore(const Group<A>& group, int tile) {
  const unsigned t = cuda::Lane();
  const int begins = t < static_cast<unsigned>(tile) ? __popc(group.begins[t]) : 0;
  return __reduce_add_sync(cuda::kAllLanes, static_cast<uint32_t>(begins));
}

// Starts the look-up of what the factor of contribution i is made of.
template <class T>
__device__ void LookUpScale(const SumJob<T>& job, int64_t i, uint32_t segment, Scale<SumType<T>>& scale) {
  if (job.factors != nullptr) {
    __pipeline_memcpy_async(&scale.factor, job.factors + i, sizeof(scale.factor));
  } else if (job.counts != nullptr) {
    __pipeline_memcpy_async(&scale.count, job.counts + segment, sizeof(scale.count));
  }
}

// Makes scales of what was looked up by the same threads, and unique_before.
template <class T>
__device__ void LoadScales(const SumJob<T>& job, int64_t first, Group<SumType<T>>& group) {
  __pipeline_wait_prior(0);
  ForEachInGroup([&](int k) {
    const int tile = k / kTile, lane = k % kTile;
    Scale<SumType<T>>& scale = group.scales[tile][lane];
    if (first + k >= job.n) {
      scale.factor = 0;
    } else if (job.factors == nullptr) {
      scale.factor = job.FactorOfCount(scale.count);
    }
    const uint32_t unique_before = UniqueBefore(group, tile);
    if (lane == 0) group.unique_before[tile] = unique_before;
  });
  __syncthreads();
}

// Writes the table rows of the rows that begin in the group. By all threads of the block.
template <class T>
__device__ void WriteUniqueRows(const SumJob<T>& job, int64_t first, const Group<SumType<T>>& group) {
  ForEachInGroup([&](int k) {
    const uint32_t begins = group.begins[k / kTile];
    const uint32_t bit = 1U << (k % kTile);
    if (first + k >= job.n || (begins & bit) == 0) return;
    const uint32_t earlier = group.unique_before[k / kTile] + static_cast<uint32_t>(__popc(begins & (bit - 1)));
    job.sink.WriteUniqueRow(job.unique_before[first / kContributionsPerGroup] + earlier, group.rows[k]);
  });
}

}  // namespace raggrad::sparse_segment::on_cuda
