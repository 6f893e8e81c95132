// Pools rows with Accumulation::kReproducible: the arithmetic of core/sum_grid.h, on rows of the table times weights.
//
// A team of lanes pools a segment. It sums its rows as they are and finds their magnitudes on the way: most often all
// lie on the grid, and the sums are good. Otherwise, and for double, it reads them twice: first for the largest
// magnitude in any column, then, when most of them are in the cache, for the sums. All teams of a block share a long
// segment, since sums are exact.
#include "raggrad/ops/sparse_segment/forward/pool_float_rows.cuh"
#include "raggrad/ops/sparse_segment/grad/column_sums.cuh"
#include "raggrad/ops/sparse_segment/grad/magnitudes.cuh"

namespace raggrad::sparse_segment::on_cuda {
namespace {

constexpr int kThreads = cuda::kTuning.pool_threads_per_block;
constexpr int64_t kLong = cuda::kTuning.pool_long_segment_rows;
constexpr int kAtOnce = cuda::kTuning.pool_exact_rows_in_flight;

// A team's part of the ids of a segment: first, first + step, ...
struct Share {
  int64_t first;
  int64_t end;
  int64_t step;
};

// Calls f(columns, weight) with the columns of each row of the share.
template <int kColumns, class T, class F>
__device__ void ForEachRow(const FloatPoolJob<T>& job, const Share& share, int64_t column, const F& f) {
  for (int64_t id = share.first; id < share.end; id += kAtOnce * share.step) {
    Packed<T, kColumns> rows[kAtOnce];
    SumType<T> weights[kAtOnce];
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      const int64_t i = id + r * share.step;
      if (i >= share.end) break;
      rows[r] = LoadPacked<kColumns>(job.row(i) + column);
      weights[r] = job.weights.values == nullptr ? SumType<T>{1} : job.weights.template Get<SumType<T>>(i);
    }
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      if (id + r * share.step < share.end) f(Unpack<T, kColumns>(rows[r]), weights[r]);
    }
  }
}

// The largest finite magnitude in this lane's columns of the share: lane_column, lane_column + stride, ...
template <int kColumns, class T>
__device__ SumType<T> LargestOf(const FloatPoolJob<T>& job, const Share& share, int64_t lane_column, int64_t stride) {
  SumType<T> largest = 0;
  for (int64_t column = lane_column; column < job.width; column += stride) {
    ForEachRow<kColumns>(job, share, column, [&](const Columns<T, kColumns>& x, SumType<T> weight) {
      for (int c = 0; c < kColumns; ++c) {
        largest = LargerFinite(largest, cuda::Multiply(cuda::Widen(x.values[c]), weight));
      }
    });
  }
  return largest;
}

template <int kColumns, class T>
__device__ ExactSums<T, kColumns> SumsOf(const FloatPoolJob<T>& job, const Share& share, int64_t column,
                                         const SumGrid<SumType<T>>& grid) {
  ExactSums<T, kColumns> sums;
  ForEachRow<kColumns>(job, share, column,
                       [&](const Columns<T, kColumns>& x, SumType<T> weight) { sums.Add(x, weight, grid); });
  return sums;
}

template <int kColumns, class T>
__device__ void StoreRounded(const FloatPoolJob<T>& job, int64_t segment, int64_t count, int64_t column,
                             const ExactSums<T, kColumns>& sums, const SumGrid<SumType<T>>& grid) {
  const auto n = static_cast<double>(count);
  const double divisor = job.divisors != nullptr                  ? static_cast<double>(job.divisors[segment])
                         : job.combiner == SegmentCombiner::kSum  ? 1
                         : job.combiner == SegmentCombiner::kMean ? n
                                                                  : sqrt(n);
  Columns<T, kColumns> rounded;
  for (int c = 0; c < kColumns; ++c) {
    rounded.values[c] = cuda::Narrow<T>(divisor == 0 ? SumType<T>{0} : sums.Round(c, grid, divisor));
  }
  Store(job.output + segment * job.width + column, rounded);
}

// Pools a segment as if all its rows lay on the grid. Returns whether they do; otherwise the output is of no use.
template <int kColumns, class T>
__device__ bool PoolOnGrid(const FloatPoolJob<T>& job, int64_t segment, int64_t begin, int64_t end, int lanes) {
  float largest = 0, smallest = __builtin_inff();
  const auto see = [&](float term) {
    largest = fmaxf(largest, fabsf(term));
    smallest = SmallerNonzero(smallest, term);
  };
  const int64_t stride = lanes * kColumns, lane_column = static_cast<int>(threadIdx.x) % lanes * kColumns;
  for (int64_t column = lane_column; column < job.width; column += stride) {
    ExactSums<T, kColumns> sums;
    ForEachRow<kColumns>(job, {begin, end, 1}, column,
                         [&](const Columns<T, kColumns>& x, float weight) { sums.AddOnGrid(x, weight, see); });
    StoreRounded(job, segment, end - begin, column, sums, {});
  }
  largest = LargestOfLanes(largest, lanes);
  smallest = SmallestOfLanes(smallest, lanes);
  return largest - largest == 0 && static_cast<double>(smallest) >= OnGridFrom(GridOf(largest, end - begin));
}

// Pools a segment of fewer than kLong rows, by one team. A segment without rows is zeros; it has no divisor.
template <int kColumns, class T>
__device__ void PoolShort(const FloatPoolJob<T>& job, int64_t segment, int64_t begin, int64_t end, int lanes) {
  const int64_t stride = lanes * kColumns, lane_column = static_cast<int>(threadIdx.x) % lanes * kColumns;
  if (begin == end) {
    for (int64_t column = lane_column; column < job.width; column += stride) {
      Store(job.output + segment * job.width + column, Columns<T, kColumns>{});
    }
    return;
  }
  if constexpr (std::is_same_v<SumType<T>, float>) {  // doubles seldom lie on their first grid
    if (PoolOnGrid<kColumns>(job, segment, begin, end, lanes)) return;
  }
  const Share all = {begin, end, 1};
  const SumType<T> largest = LargestOfLanes(LargestOf<kColumns>(job, all, lane_column, stride), lanes);
  const auto grid = GridOf(largest, end - begin);
  for (int64_t column = lane_column; column < job.width; column += stride) {
    StoreRounded(job, segment, end - begin, column, SumsOf<kColumns>(job, all, column, grid), grid);
  }
}

// Pools a longer one, by all teams of the block.
template <int kColumns, class T>
__device__ void PoolLong(const FloatPoolJob<T>& job, int64_t segment, int64_t begin, int64_t end, int lanes) {
  using A = SumType<T>;
  using Sums = ExactSums<T, kColumns>;
  __shared__ A largest;
  __shared__ double parts[kThreads][Sums::kParts][kColumns];
  const int teams = kThreads / lanes, team = static_cast<int>(threadIdx.x) / lanes;
  const int64_t stride = lanes * kColumns, lane_column = static_cast<int>(threadIdx.x) % lanes * kColumns;
  const Share share = {begin + team, end, teams};
  __syncthreads();  // the segment before may still use the memory
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  AtomicLarger(&largest, LargestOf<kColumns>(job, share, lane_column, stride));
  __syncthreads();
  const auto grid = GridOf(largest, end - begin);
  for (int64_t strip = 0; strip < job.width; strip += stride) {
    const int64_t column = strip + lane_column;
    Sums sums;
    if (column < job.width) sums = SumsOf<kColumns>(job, share, column, grid);
    for (int p = 0; p < Sums::kParts; ++p) {
      for (int c = 0; c < kColumns; ++c) parts[threadIdx.x][p][c] = sums.of[p][c];
    }
    __syncthreads();
    if (team == 0 && column < job.width) {
      for (int other = 1; other < teams; ++other) sums.AddParts(parts[other * lanes + static_cast<int>(threadIdx.x)]);
      StoreRounded(job, segment, end - begin, column, sums, grid);
    }
    __syncthreads();
  }
}

// Block x pools segments [x * teams, (x + 1) * teams).
template <int kColumns, class T>
__global__ void __launch_bounds__(kThreads) PoolReproducibleKernel(const FloatPoolJob<T> job, int lanes) {
  const int teams = kThreads / lanes;
  const int64_t first_segment = int64_t{blockIdx.x} * teams;
  const int64_t own = first_segment + static_cast<int>(threadIdx.x) / lanes;
  const int64_t own_begin = own < job.num_segments ? job.starts[own] : 0;
  const int64_t own_end = own < job.num_segments ? job.starts[own + 1] : 0;
  const bool is_long = own_end - own_begin >= kLong;
  const bool any_long = __syncthreads_or(is_long) != 0;
  if (own < job.num_segments && !is_long) PoolShort<kColumns>(job, own, own_begin, own_end, lanes);
  if (!any_long) return;
  for (int64_t segment = first_segment; segment < min(first_segment + teams, job.num_segments); ++segment) {
    const int64_t begin = job.starts[segment], end = job.starts[segment + 1];
    if (end - begin >= kLong) PoolLong<kColumns>(job, segment, begin, end, lanes);
  }
}

template <int kColumns, class T>
Status Launch(const Call& call, const FloatPoolJob<T>& job) noexcept {
  const int lanes = LanesFor<kColumns>(job.width);
  return call.Launch(PoolReproducibleKernel<kColumns, T>, cuda::Blocks(job.num_segments, kThreads / lanes), kThreads,
                     job, lanes);
}

}  // namespace

template <class T>
Status PoolReproducibly(const Call& call, const FloatPoolJob<T>& job) noexcept {
  constexpr int kColumns = sizeof(T) == 2 ? 4 : 16 / sizeof(T);
  return job.IsAligned(kColumns) ? Launch<kColumns>(call, job) : Launch<1>(call, job);
}

template Status PoolReproducibly<Half>(const Call&, const FloatPoolJob<Half>&) noexcept;
template Status PoolReproducibly<BFloat16>(const Call&, const FloatPoolJob<BFloat16>&) noexcept;
template Status PoolReproducibly<float>(const Call&, const FloatPoolJob<float>&) noexcept;
template Status PoolReproducibly<double>(const Call&, const FloatPoolJob<double>&) noexcept;

}  // namespace raggrad::sparse_segment::on_cuda
