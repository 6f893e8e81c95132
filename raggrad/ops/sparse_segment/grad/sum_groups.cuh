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
#include "raggrad/ops/sparse_segment/grad/column_sums.cuh"
#include "raggrad/ops/sparse_segment/grad/magnitudes.cuh"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::sparse_segment::on_cuda {

// Contributions of a tile. Defines results, as kContributionsPerGroup does: both fix the order of sums.
inline constexpr int kTile = 32;
inline constexpr int kTiles = kContributionsPerGroup / kTile;

inline constexpr int kBatch = cuda::kTuning.sum_rows_in_flight;
template <class T>
inline constexpr int kMaxLanes = cuda::kTuning.sum_max_lanes_per_team*(std::is_same_v<T, double> ? 2 : 1);
static_assert(kTile % kBatch == 0, "batches do not go over the end of a tile");
static_assert(kContributionsPerGroup % (kTiles * kMaxLanes<double>) == 0,
              "each thread loads equally many contributions");

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
  const SumType<T>* factors;  // [n]: of each contribution; null without weights
  void* carries;              // [groups, kParts, width] Parts: a group's sum for the row that began before it
  void* tails;  // [groups, kParts, width] Parts: its sum for the row that begins in it and extends into the next
  // Only for kReproducible: the rows of the gradient; for each group, the row that begins in it and extends into the
  // next, and the group where the row of its first contribution began. The last two are null if there is one group.
  SegmentRow<SumType<T>>* segment_rows;  // [segments]
  SpanningRow<SumType<T>>* spanning;     // [groups]
  uint32_t* began_in;                    // [groups]
  RowSink<T> sink;

  // The factor of contributions of that segment, if they have none of their own. Computed in double and rounded once.
  __device__ SumType<T> SegmentFactor(uint32_t segment) const {
    if (counts == nullptr) return 1;
    const uint32_t count = counts[segment];
    if constexpr (std::is_same_v<SumType<T>, float>) {
      // In float the same bits, and several times as fast: 1 / count is never so close to the middle of two floats
      // that double could not tell.
      constexpr uint32_t kExact = 1U << 24;  // counts up to this are floats
      if (combiner == SegmentCombiner::kMean && count <= kExact) return 1.0F / static_cast<float>(count);
    }
    return static_cast<SumType<T>>(1.0 / (combiner == SegmentCombiner::kMean ? double(count) : sqrt(double(count))));
  }
  // The factor of contribution i, which is of that segment.
  __device__ SumType<T> Factor(int64_t i, uint32_t segment) const {
    return factors != nullptr ? factors[i] : SegmentFactor(segment);
  }
  // The same and, for kReproducible, the largest finite magnitude of the contribution.
  __device__ SegmentRow<SumType<T>> Described(int64_t i, uint32_t segment) const {
    SegmentRow<SumType<T>> row = segment_rows[segment];
    if (factors != nullptr) {
      row.factor = factors[i];
      row.largest = LargestProduct(grad + segment * width, width, row.largest, row.factor);
    }
    return row;
  }
};

// Memory that sums need. For kReproducible also queues the search for magnitudes. Sets pointers of the job. All of it
// depends on the plan and the gradient alone, so it can be queued before the number of unique rows is known. n > 0.
// read_early: the plan is queued in this call, so the gradient may be read while that is made.
// Memory: two rows of sums for each group with kFast. kReproducible: two rows of doubles (float64: four) and 12 bytes
// (float64: 20) for each group, and two values for each of num_segments segments.
template <class T>
Result<Scratch<char>> PrepareSums(const cuda::Call& call, SumJob<T>& job, Accumulation accumulation,
                                  int64_t num_segments, bool read_early) noexcept;

// Queues the sums of all rows of a prepared job into its sink. kUpdate: the sink updates a table, instead of storing.
template <class T, bool kUpdate>
Status SumRows(const cuda::Call& call, const SumJob<T>& job, Accumulation accumulation) noexcept;

// The same for kReproducible.
template <class T, bool kUpdate>
Status SumRowsReproducibly(const cuda::Call& call, const SumJob<T>& job) noexcept;

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

// The number of rows that begin in earlier tiles of a loaded group. Called by all lanes of a warp.
template <class A>
__device__ uint32_t UniqueBefore(const Group<A>& group, int tile) {
  const unsigned t = cuda::Lane();
  const int begins = t < static_cast<unsigned>(tile) ? __popc(group.begins[t]) : 0;
  return __reduce_add_sync(cuda::kAllLanes, static_cast<uint32_t>(begins));
}

// Loads scales and unique_before. Separate from LoadGroup, so that loads of the gradient are in flight meanwhile.
template <class T>
__device__ void LoadScales(const SumJob<T>& job, int64_t first, Group<SumType<T>>& group) {
  ForEachInGroup([&](int k) {
    const int tile = k / kTile, lane = k % kTile;
    const int64_t i = first + k;
    if (i < job.n) group.scales[tile][lane] = job.Factor(i, group.segments[tile][lane]);
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

// The rows of a group with kReproducible, in shared memory. Number 0 is the row that began before the group.
template <class A>
struct GroupRows {
  A largest[kContributionsPerGroup + 1];
  uint32_t counts[kContributionsPerGroup + 1];

  __device__ void Clear() {
    for (unsigned r = threadIdx.x; r <= kContributionsPerGroup; r += blockDim.x) {
      largest[r] = 0;
      counts[r] = 0;
    }
  }
  __device__ void Set(uint32_t r, const SpanningRow<A>& row) {
    largest[r] = row.largest;
    counts[r] = row.count;
  }
  __device__ SumGrid<A> GridOfRow(uint32_t r) const { return GridOf(largest[r], counts[r]); }
};

// Loads scales and unique_before, and finds the rows of the group. Cleared before. By all threads of the block.
template <class T>
__device__ void LoadScalesAndRows(const SumJob<T>& job, int64_t first, uint32_t began_in, Group<SumType<T>>& group,
                                  GroupRows<SumType<T>>& rows) {
  using A = SumType<T>;
  SpanningRow<A> began_before = {}, goes_on = {};
  if (job.spanning != nullptr) {
    began_before = job.spanning[began_in];
    goes_on = job.spanning[blockIdx.x];
  }
  const uint32_t begin_here = UniqueBefore(group, kTiles);
  ForEachInGroup([&](int k) {
    const int tile = k / kTile, lane = k % kTile;
    SegmentRow<A> row = {};
    if (first + k < job.n) row = job.Described(first + k, group.segments[tile][lane]);
    group.scales[tile][lane] = row.factor;
    const uint32_t unique_before = UniqueBefore(group, tile);
    if (lane == 0) group.unique_before[tile] = unique_before;

    const uint32_t begins = group.begins[tile], later = begins >> lane >> 1;
    const int end = later == 0 ? kTile : lane + __ffs(static_cast<int>(later));  // of the row in this tile
    for (int step = 1; step < kTile; step *= 2) {
      const A other = __shfl_down_sync(cuda::kAllLanes, row.largest, step);
      if (lane + step < end && other > row.largest) row.largest = other;
    }
    if (lane > 0 && (begins >> lane & 1) == 0) return;
    const uint32_t r = unique_before + static_cast<uint32_t>(__popc(begins & ((2U << lane) - 1)));
    if (r == 0) {
      rows.Set(r, began_before);
    } else if (r == begin_here && group.GoesOn(kTiles - 1)) {
      rows.Set(r, goes_on);
    } else {
      AtomicLarger(&rows.largest[r], row.largest);
      atomicAdd(&rows.counts[r], static_cast<uint32_t>(end - lane));
    }
  });
  __syncthreads();
}

// Adds all contributions of `row` from position i on.
template <class T, int kColumns>
__device__ void AddRest(const SumJob<T>& job, int64_t i, uint32_t row, int64_t column, RoundedSums<T, kColumns>& sums) {
  for (bool more = true; more; i += kBatch) {
    Columns<T, kColumns> x[kBatch];
    SumType<T> scales[kBatch];
    int count = 0;
    for (int b = 0; b < kBatch; ++b) {
      more = more && i + b < job.n && job.contributions[i + b].row == row;
      if (!more) continue;
      const uint32_t segment = job.contributions[i + b].segment;
      x[b] = Load<kColumns>(job.grad + segment * job.width + column);
      scales[b] = job.Factor(i + b, segment);
      count = b + 1;
    }
    for (int b = 0; b < kBatch; ++b) {
      if (b < count) sums.Add(x[b], scales[b], {});
    }
  }
}

// Blocks that should fit on a multiprocessor.
template <class T, bool kUpdate>
constexpr int SumBlocks(Accumulation accumulation) {
  const bool heavy = kUpdate || accumulation == Accumulation::kSequential || std::is_same_v<T, double>;
  const int blocks =
      heavy ? cuda::kTuning.sum_heavy_blocks_per_multiprocessor : cuda::kTuning.sum_blocks_per_multiprocessor;
  return blocks * kMaxLanes<float> / kMaxLanes<T>;
}

// Block (x, y) sums group x, in the columns of strip first_strip + y. A strip is the columns of a team, which has
// 2^lane_bits lanes. With kSequential the team where a row begins adds all of it, left to right, and leaves nothing to
// CombineGroupsKernel.
template <class T, int kColumns, bool kUpdate, Accumulation kAccumulation>
__global__ void __launch_bounds__(kTiles* kMaxLanes<T>, SumBlocks<T, kUpdate>(kAccumulation))
    SumGroupsKernel(const SumJob<T> job, int lane_bits, int64_t first_strip) {
  using A = SumType<T>;
  constexpr bool kExact = kAccumulation == Accumulation::kReproducible;
  using Sums = std::conditional_t<kExact, ExactSums<T, kColumns>, RoundedSums<T, kColumns>>;
  using Part = typename Sums::Part;
  struct NoRows {};
  __shared__ Group<A> group;
  __shared__ std::conditional_t<kExact, GroupRows<A>, NoRows> rows;
  __shared__ Part carries[kTiles][kMaxLanes<T>][Sums::kParts][kColumns];
  const int64_t first = int64_t{blockIdx.x} * kContributionsPerGroup;
  const int64_t strip = first_strip + blockIdx.y;
  if constexpr (kExact) rows.Clear();
  cuda::AwaitKernelBefore();
  cuda::LetNextKernelStart();  // only now: CombineGroupsKernel reads the plan before it waits for this kernel
  uint32_t began_in = 0;
  if constexpr (kExact) began_in = job.began_in != nullptr ? job.began_in[blockIdx.x] : 0;
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
    if constexpr (kUpdate) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (j + b < count && (group.begins[tile] >> (j + b) & 1) != 0) {
          job.sink.Prefetch(group.rows[tile * kTile + j + b], column, job.width);
        }
      }
    }
  };
  load_batch(0);
  if constexpr (kExact) {
    LoadScalesAndRows(job, first, began_in, group, rows);
  } else {
    LoadScales(job, first, group);
  }
  if (strip == 0 && job.sink.unique_rows != nullptr) WriteUniqueRows(job, first, group);

  const uint32_t begins = group.begins[tile];
  const bool goes_on = count == kTile && group.GoesOn(tile);
  const uint32_t before_group = job.unique_before[blockIdx.x];
  uint32_t next_row = count > 0 ? before_group + group.unique_before[tile] : 0;
  bool began = false;  // whether the current row began in this tile
  Sums sums;
  typename Sums::Grid grid = {};
  const auto set_grid = [&] {
    if constexpr (kExact) grid = rows.GridOfRow(next_row - before_group);
  };
  if (count > 0) set_grid();

  const auto keep_carry = [&] {
    for (int p = 0; p < Sums::kParts; ++p) {
      for (int c = 0; c < kColumns; ++c) carries[tile][lane][p][c] = sums.of[p][c];
    }
  };
  const auto finish_row = [&](int end) {  // the row ends before contribution `end` of the tile
    if (began) {
      A rounded[kColumns];
      for (int c = 0; c < kColumns; ++c) rounded[c] = sums.Round(c, grid);
      job.sink.template Take<kColumns, kUpdate>(next_row - 1, group.rows[tile * kTile + end - 1], column, job.width,
                                                rounded);
    } else if constexpr (kAccumulation != Accumulation::kSequential) {
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
        sums = {};
        set_grid();
      }
      sums.Add(Unpack<T, kColumns>(x[b]), group.scales[tile][j + b], grid);
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
        sums.AddParts(carries[t][lane]);
        if (group.begins[t] != 0 || !group.GoesOn(t)) return true;
      }
      return false;
    };
    const auto keep = [&](void* parts) {
      Part* const group_parts = static_cast<Part*>(parts) + int64_t{blockIdx.x} * Sums::kParts * job.width + column;
      for (int p = 0; p < Sums::kParts; ++p) {
        for (int c = 0; c < kColumns; ++c) group_parts[p * job.width + c] = sums.of[p][c];
      }
    };
    if (began && goes_on) {
      if (add_carries(tile + 1)) {
        finish_row(kTile);
      } else {
        keep(job.tails);
      }
    }
    if (tile == 0 && count > 0 && (begins & 1) == 0) {
      for (int p = 0; p < Sums::kParts; ++p) {
        for (int c = 0; c < kColumns; ++c) sums.of[p][c] = carries[0][lane][p][c];
      }
      if (begins == 0 && goes_on) add_carries(1);
      keep(job.carries);
    }
  }
}

}  // namespace raggrad::sparse_segment::on_cuda
