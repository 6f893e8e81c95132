// The kernel that sums the contributions of each row. sparse_segment.h has the order of summation.
//
// Contributions are sorted by row. A block of threads sums a group of kTiles tiles of kTile contributions. A team of
// lanes sums each tile, a lane some neighbouring columns. A row that begins and ends in one tile is complete there. The
// sum of contributions at the start of a tile whose row began earlier is the tile's carry: the team where the row began
// adds the carries of later tiles. combine_groups.cuh does the same between groups, through memory. Tiles are equal
// work, however long rows are.
#pragma once

#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_segment/grad/row_sink.cuh"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::sparse_segment::on_cuda {

// Contributions of a tile. Defines results, as kContributionsPerGroup does: both fix the order of sums.
inline constexpr int kTile = 32;
inline constexpr int kTiles = kContributionsPerGroup / kTile;

inline constexpr int kBatch = cuda::kTuning.sum_rows_in_flight;
inline constexpr int kMaxLanes = cuda::kTuning.sum_max_lanes_per_team;
static_assert(kTile % kBatch == 0, "batches do not go over the end of a tile");
static_assert(kContributionsPerGroup % (kTiles * kMaxLanes) == 0, "each thread loads equally many contributions");

// Operands and sink of the sums.
template <class T>
struct SumJob {
  const T* grad;  // [segments, width]
  int64_t width;
  const Contribution* contributions;  // [n], sorted by row
  int64_t n;
  const uint32_t* unique_before;  // [groups + 1]: unique rows that begin before each group
  const uint32_t* counts;         // ids per segment; null if contributions are not scaled
  SegmentCombiner combiner;
  SumType<T>* carries;  // [groups, width]: a group's sum for the row that began before it
  SumType<T>* tails;    // [groups, width]: its sum for the row that begins in it and extends into the next
  RowSink<T> sink;

  // The factor of a segment's contributions, computed in double and rounded once.
  __device__ SumType<T> Scale(uint32_t segment) const {
    if (counts == nullptr) return 1;
    const double count = counts[segment];
    return static_cast<SumType<T>>(1.0 / (combiner == SegmentCombiner::kMean ? count : sqrt(count)));
  }
};

// Queues the sums of all rows of the job into its sink. kUpdate: the sink updates a table, instead of storing. Sets the
// job's carries and tails. n > 0. Memory: two rows of sums for each group with kFast.
template <class T, bool kUpdate>
Status SumRows(const cuda::Call& call, SumJob<T> job, Accumulation accumulation) noexcept;

// A group of contributions, in shared memory.
template <class A>
struct Group {
  // Tiles are padded by one, so that teams read from different banks.
  int64_t offsets[kTiles][kTile + 1];  // of rows of the gradient; 0 where there is no contribution
  uint32_t segments[kTiles][kTile + 1];
  A scales[kTiles][kTile + 1];
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

// Loads all of a group but scales and unique_before.
template <class T>
__device__ void LoadGroup(const SumJob<T>& job, int64_t first, Group<SumType<T>>& group) {
  ForEachInGroup([&](int k) {
    const int64_t i = first + k;
    const bool exists = i < job.n;
    const Contribution contribution = exists ? job.contributions[i] : Contribution{};
    uint32_t row_before = __shfl_up_sync(~0U, contribution.row, 1);  // a warp has exactly one tile
    if (k % kTile == 0 && exists && i > 0) row_before = job.contributions[i - 1].row;
    const uint32_t mask = __ballot_sync(~0U, !exists || i == 0 || row_before != contribution.row);
    if (k % kTile == 0) group.begins[k / kTile] = mask;
    group.rows[k] = contribution.row;
    group.segments[k / kTile][k % kTile] = contribution.segment;
    group.offsets[k / kTile][k % kTile] = contribution.segment * job.width;
  });
  if (threadIdx.x == 0) {
    const int64_t next = first + kContributionsPerGroup;
    group.begins[kTiles] = next >= job.n || job.contributions[next].row != job.contributions[next - 1].row ? 1 : 0;
  }
  __syncthreads();
}

// Loads scales and unique_before. Separate from LoadGroup, so that loads of the gradient are in flight meanwhile.
template <class T>
__device__ void LoadScales(const SumJob<T>& job, int64_t first, Group<SumType<T>>& group) {
  ForEachInGroup([&](int k) {
    if (first + k < job.n) group.scales[k / kTile][k % kTile] = job.Scale(group.segments[k / kTile][k % kTile]);
  });
  if (threadIdx.x < kTiles) {
    uint32_t unique_before = 0;
    for (uint32_t t = 0; t < threadIdx.x; ++t) unique_before += static_cast<uint32_t>(__popc(group.begins[t]));
    group.unique_before[threadIdx.x] = unique_before;
  }
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

// sums += x * scale, with a rounded product.
template <class T, int kColumns>
__device__ void AddScaled(SumType<T> (&sums)[kColumns], const Columns<T, kColumns>& x, SumType<T> scale) {
  for (int c = 0; c < kColumns; ++c) {
    sums[c] = cuda::Add(sums[c], cuda::Multiply(cuda::Widen(x.values[c]), scale));
  }
}

// Adds all contributions of `row` from position i on.
template <class T, int kColumns>
__device__ void AddRest(const SumJob<T>& job, int64_t i, uint32_t row, int64_t column, SumType<T> (&sums)[kColumns]) {
  for (bool more = true; more; i += kBatch) {
    Columns<T, kColumns> x[kBatch];
    SumType<T> scales[kBatch];
    int count = 0;
    for (int b = 0; b < kBatch; ++b) {
      more = more && i + b < job.n && job.contributions[i + b].row == row;
      if (!more) continue;
      const uint32_t segment = job.contributions[i + b].segment;
      x[b] = Load<kColumns>(job.grad + segment * job.width + column);
      scales[b] = job.Scale(segment);
      count = b + 1;
    }
    for (int b = 0; b < kBatch; ++b) {
      if (b < count) AddScaled<T>(sums, x[b], scales[b]);
    }
  }
}

// Block (x, y) sums group x, in the columns of strip first_strip + y. A strip is the columns of a team, which has
// 2^lane_bits lanes. With kSequential the team where a row begins adds all of it, left to right, and leaves nothing to
// CombineGroupsKernel.
template <class T, int kColumns, bool kUpdate, Accumulation kAccumulation>
__global__ void __launch_bounds__(kTiles* kMaxLanes, cuda::kTuning.sum_blocks_per_multiprocessor)
    SumGroupsKernel(const SumJob<T> job, int lane_bits, int64_t first_strip) {
  using A = SumType<T>;
  __shared__ Group<A> group;
  __shared__ A carries[kTiles][kMaxLanes][kColumns];
  const int64_t first = int64_t{blockIdx.x} * kContributionsPerGroup;
  const int64_t strip = first_strip + blockIdx.y;
  cuda::AwaitKernelBefore();
  cuda::LetNextKernelStart();  // only now: CombineGroupsKernel reads the plan before it waits for this kernel
  LoadGroup(job, first, group);

  const int lane = static_cast<int>(threadIdx.x) & ((1 << lane_bits) - 1);
  const int tile = static_cast<int>(threadIdx.x) >> lane_bits;
  const int64_t column = ((strip << lane_bits) + lane) * kColumns;
  const int64_t left = job.n - first - tile * kTile;
  const int count = column >= job.width || left <= 0 ? 0 : left < kTile ? static_cast<int>(left) : kTile;
  Packed<T, kColumns> x[kBatch];
  const T* const columns = job.grad + column;
  const auto load_batch = [&](int j) {
    if (j >= count) return;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) x[b] = LoadPacked<kColumns>(columns + group.offsets[tile][j + b]);
  };
  load_batch(0);
  LoadScales(job, first, group);
  if (strip == 0 && job.sink.unique_rows != nullptr) WriteUniqueRows(job, first, group);

  const uint32_t begins = group.begins[tile];
  const bool goes_on = count == kTile && group.GoesOn(tile);
  uint32_t next_row = count > 0 ? job.unique_before[blockIdx.x] + group.unique_before[tile] : 0;
  bool began = false;  // whether the current row began in this tile
  A sums[kColumns] = {};

  const auto keep_carry = [&] {
    for (int c = 0; c < kColumns; ++c) carries[tile][lane][c] = sums[c];
  };
  const auto finish_row = [&](int end) {  // the row ends before contribution `end` of the tile
    if (began) {
      job.sink.template Take<kColumns, kUpdate>(next_row - 1, group.rows[tile * kTile + end - 1], column, job.width,
                                                sums);
    } else if constexpr (kAccumulation == Accumulation::kFast) {
      keep_carry();
    }
  };
  for (int j = 0; j < count; j += kBatch) {
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (j + b >= count) break;
      if ((begins >> (j + b) & 1) != 0) {
        if (j + b > 0) finish_row(j + b);
        began = true;
        ++next_row;
        for (A& sum : sums) sum = 0;
      }
      AddScaled<T>(sums, Unpack<T, kColumns>(x[b]), group.scales[tile][j + b]);
    }
    load_batch(j + kBatch);
  }
  if (count > 0 && !(began && goes_on)) finish_row(count);

  if constexpr (kAccumulation == Accumulation::kSequential) {
    if (!(began && goes_on)) return;
    AddRest(job, first + (tile + 1) * kTile, group.rows[tile * kTile + kTile - 1], column, sums);
    finish_row(kTile);
  } else {
    __syncthreads();
    // Adds the carries from tile t on. Returns whether the row ends in this group.
    const auto add_carries = [&](int t) {
      for (; t < kTiles; ++t) {
        for (int c = 0; c < kColumns; ++c) sums[c] = cuda::Add(sums[c], carries[t][lane][c]);
        if (group.begins[t] != 0 || !group.GoesOn(t)) return true;
      }
      return false;
    };
    const int64_t place = int64_t{blockIdx.x} * job.width + column;
    if (began && goes_on) {
      if (add_carries(tile + 1)) {
        finish_row(kTile);
      } else {
        for (int c = 0; c < kColumns; ++c) job.tails[place + c] = sums[c];
      }
    }
    if (tile == 0 && count > 0 && (begins & 1) == 0) {
      for (int c = 0; c < kColumns; ++c) sums[c] = carries[0][lane][c];
      if (begins == 0 && goes_on) add_carries(1);
      for (int c = 0; c < kColumns; ++c) job.carries[place + c] = sums[c];
    }
  }
}

}  // namespace raggrad::sparse_segment::on_cuda
