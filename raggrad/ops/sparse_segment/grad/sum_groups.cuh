// The kernel that sums the contributions of each row. sparse_segment.h has the order of summation.
//
// Contributions are sorted by row. A block of threads sums a group of kTiles tiles of kTile contributions. A team of
// lanes sums each tile, a lane some neighbouring columns. A row that begins and ends in one tile is complete there. The
// sum of contributions at the start of a tile whose row began earlier is the tile's carry: the team where the row began
// adds the carries of later tiles. combine_groups.cuh does the same between groups, through memory. Tiles are equal
// work, however long rows are.
#pragma once

#include "raggrad/ops/sparse_segment/grad/columns_of_rows.cuh"
#include "raggrad/ops/sparse_segment/grad/group_grids.cuh"

namespace raggrad::sparse_segment::on_cuda {

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
  // SpanningKernel awaited the plan and the magnitudes of segments before it let this kernel start, so that only what
  // it writes itself has to be waited for.
  const bool after_spanning = kExact && job.spanning != nullptr;
  if (!after_spanning) cuda::AwaitKernelBefore();
  LoadGroup(job, first, group, [&](int k, int64_t i, uint32_t segment) {
    if constexpr (kExact) {
      LookUpSegment(job, segment, rows.described[k]);
    } else {
      LookUpScale(job, i, segment, group.scales[k / kTile][k % kTile]);
    }
  });

  const int lane = static_cast<int>(threadIdx.x) & ((1 << lane_bits) - 1);
  const int tile = static_cast<int>(threadIdx.x) >> lane_bits;
  const int64_t column = ((strip << lane_bits) + lane) * kColumns;
  const int64_t left = job.n - first - tile * kTile;
  const int count = Kept(column >= job.width || left <= 0 ? 0 : left < kTile ? static_cast<int>(left) : kTile);
  Packed<T, kColumns> x[kBatch];
  const ColumnsOfRows<T> columns(job.grad, job.width, column);
  const auto load_batch = [&](int j) {
    if (j >= count) return;
    const auto segments = Batch<uint32_t>::Of(&group.segments[tile][j]);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) x[b] = LoadPacked<kColumns>(columns.OfRow(segments.of[b]));
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
  if (after_spanning) cuda::AwaitKernelBefore();
  cuda::LetNextKernelStart();  // only now: CombineGroupsKernel reads the plan before it waits for this kernel
  if constexpr (kExact) {
    LoadScalesAndGrids(job, first, group, rows);
  } else {
    LoadScales(job, first, group);
  }
  if (strip == 0 && job.sink.unique_rows != nullptr) WriteUniqueRows(job, first, group);

  const uint32_t begins = group.begins[tile] & (count < kTile ? (1U << count) - 1 : ~0U);
  const bool goes_on = count == kTile && group.GoesOn(tile);
  uint32_t row = count > 0 ? group.unique_before[tile] : 0;  // the current one, counted from 1 in the group
  bool began = false;                                        // whether it began in this tile
  Sums sums;
  typename Sums::Grid grid = {};
  [[maybe_unused]] const PackedGrid<A>* grid_of_row = nullptr;
  if constexpr (kExact) {
    grid_of_row = KeptShared(&rows.grids[row]);
    grid = grid_of_row->Get();
  }

  const auto keep_carry = [&] {
    for (int p = 0; p < Sums::kParts; ++p) {
      for (int c = 0; c < kColumns; ++c) carries[tile][lane][p][c] = sums.of[p][c];
    }
  };
  // Rows of the group are stored one after the other from here on, or at their places in the table.
  const int64_t before_group = job.unique_before[blockIdx.x];
  const int64_t output_begin = job.sink.dense ? 0 : (before_group - 1) * job.width;
  const ColumnsOfRows<T> output(job.sink.output + output_begin, job.width, column);
  const int64_t rows_left = job.sink.max_rows - before_group;
  const uint32_t room = rows_left < 0 ? 0 : Kept(static_cast<uint32_t>(min(rows_left, int64_t{UINT32_MAX})));
  const auto finish_row = [&](int end) {  // the row ends before contribution `end` of the tile
    if (began) {
      A rounded[kColumns];
      for (int c = 0; c < kColumns; ++c) rounded[c] = sums.Round(c, grid);
      const auto table_row = [&] { return group.rows[tile * kTile + end - 1]; };
      if constexpr (kUpdate) {
        job.sink.Update(table_row(), column, job.width, rounded);
      } else if (row <= room) {
        job.sink.Store(output.OfRow(job.sink.dense ? table_row() : row), rounded);
      }
    } else if constexpr (kAccumulation != Accumulation::kSequential) {
      keep_carry();
    }
  };
  // kOnGrid: 8 of some 59 instructions a contribution are not needed then.
  const auto sum_tile = [&]<bool kOnGrid>() {
    uint32_t begins_left = begins;
    for (int j = 0; j < count; j += kBatch, begins_left >>= kBatch) {
      if (j + kBatch > count) {  // zeros behind the last contribution change no sum
#pragma unroll
        for (int b = 1; b < kBatch; ++b) {
          if (j + b >= count) x[b] = {};
        }
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if ((begins_left >> b & 1) != 0) {
          finish_row(j + b);  // at the start of a tile it keeps a carry that nobody reads
          began = true;
          ++row;
          sums = {};
          if constexpr (kExact) grid = (++grid_of_row)->Get();
        }
        sums.template Add<kOnGrid>(Unpack<T, kColumns>(x[b]), group.scales[tile][j + b].factor, grid);
      }
      load_batch(j + kBatch);
    }
  };
  bool on_grids = false;
  if constexpr (kExact && SegmentRow<A>::kHasSmallest) {
    on_grids = job.factors == nullptr && LieOnGrids(rows, tile, count, begins, row, lane, 1 << lane_bits);
    if (on_grids) sum_tile.template operator()<true>();
  }
  if (!on_grids) sum_tile.template operator()<false>();
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
