// The grids of a group's rows, which kReproducible has to know before it sums them.
#pragma once

#include "raggrad/ops/sparse_segment/grad/group.cuh"

namespace raggrad::sparse_segment::on_cuda {

// The grid of a row in shared memory. One of float is a magic number whose lower half is zero; those of double have
// five numbers, which are computed when they are needed.
template <class A>
class PackedGrid {
 public:
  __device__ void Set(A largest, uint32_t count) {
    largest_ = largest;
    count_ = count;
  }
  __device__ SumGrid<A> Get() const { return GridOf(largest_, count_); }

 private:
  A largest_;
  uint32_t count_;
};
template <>
class PackedGrid<float> {
 public:
  __device__ void Set(float largest, uint32_t count) { magic_high_ = __double2hiint(GridOf(largest, count).magic); }
  __device__ SumGrid<float> Get() const { return {__hiloint2double(magic_high_, 0)}; }
  // The exponent, as the bits of a float have it, from which on contributions lie on the grid (OnGridFrom).
  __device__ int OnGridFrom() const { return (magic_high_ >> 20) - 1023 - 29 + 127; }

 private:
  int magic_high_;
};

// The rows of a group with kReproducible, in shared memory.
template <class A>
struct GroupRows {
  SegmentRow<A> described[kContributionsPerGroup];  // the segment of each contribution
  PackedGrid<A> grids[kContributionsPerGroup + 1];  // number 0 is the row that began before the group
  // Of the row that begins in each tile and extends into the next.
  A largest[kTiles];
  uint32_t counts[kTiles];
  SpanningRow<A> began_before, goes_on;  // the rows that extend into the group, and into the next one

  __device__ void Clear() {
    if (threadIdx.x == 0) began_before = goes_on = {};
    if (threadIdx.x >= kTiles) return;
    largest[threadIdx.x] = 0;
    counts[threadIdx.x] = 0;
  }
};

// Starts the look-up of a contribution's segment.
template <class T>
__device__ void LookUpSegment(const SumJob<T>& job, uint32_t segment, SegmentRow<SumType<T>>& described) {
  __pipeline_memcpy_async(&described, job.segment_rows + segment, sizeof(described));
}

// Loads scales and unique_before, and finds the grids of the group's rows. Rows were cleared, and segments looked up by
// the same threads. By all threads of the block.
template <class T>
__device__ void LoadScalesAndGrids(const SumJob<T>& job, int64_t first, Group<SumType<T>>& group,
                                   GroupRows<SumType<T>>& rows) {
  using A = SumType<T>;
  // By one thread, into shared memory: registers of all threads would be missing in the loop over contributions.
  if (threadIdx.x == kTiles && job.spanning != nullptr) {
    __pipeline_memcpy_async(&rows.began_before, job.spanning + job.began_in[blockIdx.x], sizeof(SpanningRow<A>));
    __pipeline_memcpy_async(&rows.goes_on, job.spanning + blockIdx.x, sizeof(SpanningRow<A>));
  }
  __pipeline_commit();
  __pipeline_wait_prior(1);  // for the batch before, the segments
  const bool row_begins = cuda::Lane() < kTiles && group.begins[cuda::Lane()] != 0;
  const uint32_t tiles_with_begins = __ballot_sync(cuda::kAllLanes, row_begins);
  ForEachInGroup([&](int k) {
    const int tile = k / kTile, lane = k % kTile;
    SegmentRow<A> row = {};
    if (first + k < job.n) row = job.Described(first + k, group.segments[tile][lane], rows.described[k]);
    group.scales[tile][lane].factor = row.factor;
    const uint32_t unique_before = UniqueBefore(group, tile);
    if (lane == 0) group.unique_before[tile] = unique_before;

    const uint32_t begins = group.begins[tile], later = begins >> lane >> 1;
    const int end = later == 0 ? kTile : lane + __ffs(static_cast<int>(later));  // of the row in this tile
    for (int step = 1; step < kTile; step *= 2) {
      const A other = __shfl_down_sync(cuda::kAllLanes, row.largest, step);
      if (lane + step < end && other > row.largest) row.largest = other;
    }
    const bool begins_here = (begins >> lane & 1) != 0;
    if (lane > 0 && !begins_here) return;
    const auto count = static_cast<uint32_t>(end - lane);
    if (begins_here && (end < kTile || !group.GoesOn(tile))) {
      rows.grids[unique_before + static_cast<uint32_t>(__popc(begins & ((2U << lane) - 1)))].Set(row.largest, count);
      return;
    }
    const uint32_t earlier = begins_here ? 1U << tile : tiles_with_begins & ((1U << tile) - 1);
    if (earlier == 0) return;  // the row began before the group
    const int began = 31 - __clz(static_cast<int>(earlier));
    AtomicLarger(&rows.largest[began], row.largest);
    atomicAdd(&rows.counts[began], count);
  });
  __pipeline_wait_prior(0);
  __syncthreads();
  const auto tile = static_cast<int>(threadIdx.x);
  if (tile < kTiles && group.begins[tile] != 0 && group.GoesOn(tile)) {
    const uint32_t last = group.unique_before[tile] + static_cast<uint32_t>(__popc(group.begins[tile]));
    const bool leaves_group = tiles_with_begins >> tile == 1 && group.GoesOn(kTiles - 1);
    rows.grids[last].Set(leaves_group ? rows.goes_on.largest : rows.largest[tile],
                         leaves_group ? rows.goes_on.count : rows.counts[tile]);
  }
  if (tile == kTiles) rows.grids[0].Set(rows.began_before.largest, rows.began_before.count);
  __syncthreads();
}

// Whether all contributions that the lanes of this warp sum lie on the grids of their rows, so that none of them needs
// to be rounded. Called by all lanes of a warp, each with its tile: the `count` contributions, where rows begin, and
// the row of the first one.
template <class A>
__device__ bool LieOnGrids(const GroupRows<A>& rows, int tile, int count, uint32_t begins, uint32_t row, int lane,
                           int lanes) {
  bool on_grids = true;
  for (int i = lane; i < count; i += lanes) {
    const uint32_t row_of_i = row + static_cast<uint32_t>(__popc(begins & ((2U << i) - 1)));
    if (rows.described[tile * kTile + i].SmallestExponent() < rows.grids[row_of_i].OnGridFrom()) on_grids = false;
  }
  return __all_sync(cuda::kAllLanes, on_grids);
}

}  // namespace raggrad::sparse_segment::on_cuda
