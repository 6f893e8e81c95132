// The kernel of the forwards: pools the rows of segments, in the order of summation that sparse_segment.h states.
//
// A team of lanes pools a segment. Each lane has 16 bytes of its columns, or one column if rows are not aligned to 16
// bytes, and loads all rows of a group, up to nine, before it adds them. Groups are summed by themselves before they
// are added to the total. All teams of a block can therefore share a long segment: each of n teams sums every n-th
// group, and one team adds up the groups in order.
#pragma once

#include <cstdint>
#include <type_traits>

#include "raggrad/cuda/arithmetic.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_segment/plan/plan_cuda.cuh"

namespace raggrad::sparse_segment::on_cuda {

using cuda::Add;
using cuda::Multiply;
using cuda::Narrow;
using cuda::Widen;

// These two define results: they are TensorFlow's order of sums and rounding.
inline constexpr int kRowsTogether = 8;  // rows of a group
inline constexpr int kDivided = 10;      // shorter segments, which are one group, are multiplied by a reciprocal

inline constexpr int kPoolThreads = cuda::kTuning.pool_threads_per_block;
inline constexpr int kPoolMaxLanes = cuda::kTuning.pool_max_lanes_per_team;
inline constexpr int64_t kLong = cuda::kTuning.pool_long_segment_rows;
static_assert(kPoolThreads % kPoolMaxLanes == 0 && (kPoolMaxLanes & (kPoolMaxLanes - 1)) == 0);
static_assert(kLong >= kDivided, "PoolLong has no reciprocals");

template <class T, class Indices>  // T is unsigned for integers: sums wrap
struct PoolJob {
  SegmentCombiner combiner;
  const T* data;  // [table_rows, width]
  int64_t width;
  Indices indices;        // in range
  const int64_t* starts;  // [num_segments + 1]: segment s has the ids [starts[s], starts[s + 1])
  int64_t num_segments;
  T* output;  // [num_segments, width]

  __device__ const T* row(int64_t id) const { return data + static_cast<int64_t>(indices[id]) * width; }
};

// V neighbouring values of one row.
template <class T, int V>
struct Strip {
  using Raw = std::conditional_t<V == 1, T, uint4>;
  static_assert(sizeof(Raw) == V * sizeof(T));
  union {
    Raw raw;
    T values[V];
  };

  __device__ Strip() {}
  __device__ explicit Strip(const T* from) : raw(*reinterpret_cast<const Raw*>(from)) {}
  __device__ void Store(T* to) const { *reinterpret_cast<Raw*>(to) = raw; }
};

template <class T, int V>
struct Sums {
  SumType<T> of[V];

  __device__ void Add(const Sums& other) {
#pragma unroll
    for (int v = 0; v < V; ++v) of[v] = cuda::Add(of[v], other.of[v]);
  }
};

// The sum, left to right, of the rows that ids [id, id + count) name. 1 <= count <= kMost.
template <int kMost, int V, class T, class Indices>
__device__ Sums<T, V> SumGroup(const PoolJob<T, Indices>& job, int64_t id, int count, int64_t column) {
  Strip<T, V> rows[kMost];
#pragma unroll
  for (int r = 0; r < kMost; ++r) {
    if (r < count) rows[r] = Strip<T, V>(job.row(id + r) + column);
  }
  Sums<T, V> sums;
#pragma unroll
  for (int v = 0; v < V; ++v) sums.of[v] = Widen(rows[0].values[v]);
#pragma unroll
  for (int r = 1; r < kMost; ++r) {
    if (r >= count) break;
#pragma unroll
    for (int v = 0; v < V; ++v) sums.of[v] = Add(sums.of[v], Widen(rows[r].values[v]));
  }
  return sums;
}

// The size of the first group of a segment of n >= 2 rows: the rows that do not fill a group of 8. If that is one row
// or none, they and the next 8 are the first group.
__device__ inline int FirstGroup(int64_t n) {
  const int rest = static_cast<int>(n % kRowsTogether);
  return rest < 2 ? rest + kRowsTogether : rest;
}

template <class A>
__device__ A Divisor(SegmentCombiner combiner, int64_t n) {
  return combiner == SegmentCombiner::kMean ? static_cast<A>(n) : static_cast<A>(sqrt(static_cast<double>(n)));
}

// Scales a short segment's sum, which is its first group.
template <int V, class T>
__device__ void ScaleFirst(SegmentCombiner combiner, int64_t n, Sums<T, V>& sums) {
  using A = SumType<T>;
  if constexpr (std::is_floating_point_v<A>) {
    if (combiner == SegmentCombiner::kSum || n >= kDivided) return;
    const A factor = A{1} / Divisor<A>(combiner, n);
#pragma unroll
    for (int v = 0; v < V; ++v) sums.of[v] = Multiply(sums.of[v], factor);
  }
}

// Stores the finished row; divides if the segment is long enough for that.
template <int V, class T>
__device__ void Finish(SegmentCombiner combiner, int64_t n, const Sums<T, V>& sums, T* to) {
  using A = SumType<T>;
  Strip<T, V> strip;
  bool divide = false;
  A divisor = 1;
  if constexpr (std::is_floating_point_v<A>) {
    divide = combiner != SegmentCombiner::kSum && n >= kDivided;
    if (divide) divisor = Divisor<A>(combiner, n);
  }
#pragma unroll
  for (int v = 0; v < V; ++v) strip.values[v] = Narrow<T>(divide ? cuda::Divide(sums.of[v], divisor) : sums.of[v]);
  strip.Store(to);
}

// Pools a segment of fewer than kLong rows, by one team.
template <int V, class T, class Indices>
__device__ void PoolShort(const PoolJob<T, Indices>& job, int64_t segment, int64_t begin, int64_t end, int64_t column) {
  T* const to = job.output + segment * job.width + column;
  const int64_t n = end - begin;
  if (n == 0) {
    Strip<T, V> zeros;
    zeros.raw = {};
    return zeros.Store(to);
  }
  if (n == 1) return Strip<T, V>(job.row(begin) + column).Store(to);
  const int first = FirstGroup(n);
  Sums<T, V> total = SumGroup<kRowsTogether + 1, V>(job, begin, first, column);
  ScaleFirst<V, T>(job.combiner, n, total);
  for (int64_t id = begin + first; id < end; id += kRowsTogether)
    total.Add(SumGroup<kRowsTogether, V>(job, id, kRowsTogether, column));
  Finish<V, T>(job.combiner, n, total, to);
}

// Pools a segment of kLong rows or more, by all teams of the block. Two sets of sums take turns: while one is added up,
// the next groups are loaded into the other.
template <int V, class T, class Indices>
__device__ void PoolLong(const PoolJob<T, Indices>& job, int64_t segment, int64_t begin, int64_t end, int64_t column,
                         int lanes, Sums<T, V> (&shared)[2][kPoolThreads]) {
  const int teams = kPoolThreads / lanes, team = static_cast<int>(threadIdx.x) / lanes;
  const bool inside = column < job.width;
  const int64_t n = end - begin;
  const int first = FirstGroup(n);
  const int64_t groups = (n - first) / kRowsTogether;  // after the first
  Sums<T, V> total;
  if (team == 0 && inside) total = SumGroup<kRowsTogether + 1, V>(job, begin, first, column);
  int set = 0;
  for (int64_t round = 0; round < groups; round += teams, set ^= 1) {
    if (round + team < groups && inside) {
      shared[set][threadIdx.x] =
          SumGroup<kRowsTogether, V>(job, begin + first + (round + team) * kRowsTogether, kRowsTogether, column);
    }
    __syncthreads();
    if (team != 0 || !inside) continue;
    for (int other = 0; other < teams && round + other < groups; ++other) {
      total.Add(shared[set][other * lanes + static_cast<int>(threadIdx.x)]);
    }
  }
  __syncthreads();  // the next segment reuses the sums
  if (team == 0 && inside) Finish<V, T>(job.combiner, n, total, job.output + segment * job.width + column);
}

// Block (x, y) pools segments [x * teams, (x + 1) * teams). A strip is lanes * V columns; the block has strips y, y +
// gridDim.y, ...
template <int V, class T, class Indices>
__global__ void __launch_bounds__(kPoolThreads) PoolKernel(PoolJob<T, Indices> job, int lanes) {
  __shared__ Sums<T, V> shared[2][kPoolThreads];
  const int teams = kPoolThreads / lanes;
  const int64_t first_segment = static_cast<int64_t>(blockIdx.x) * teams;
  const int64_t own = first_segment + static_cast<int>(threadIdx.x) / lanes;
  const int64_t own_begin = own < job.num_segments ? job.starts[own] : 0;
  const int64_t own_end = own < job.num_segments ? job.starts[own + 1] : 0;
  const bool is_long = own_end - own_begin >= kLong;
  const bool any_long = __syncthreads_or(is_long) != 0;
  const int64_t stride = static_cast<int64_t>(gridDim.y) * lanes * V;
  const int64_t lane_column = (static_cast<int64_t>(blockIdx.y) * lanes + static_cast<int>(threadIdx.x) % lanes) * V;
  if (own < job.num_segments && !is_long) {
    for (int64_t c = lane_column; c < job.width; c += stride) PoolShort<V>(job, own, own_begin, own_end, c);
  }
  if (!any_long) return;
  for (int64_t segment = first_segment; segment < min(first_segment + teams, job.num_segments); ++segment) {
    const int64_t begin = job.starts[segment], end = job.starts[segment + 1];
    if (end - begin < kLong) continue;
    const int64_t strip_begin = static_cast<int64_t>(blockIdx.y) * lanes * V;
    for (int64_t strip = strip_begin; strip < job.width; strip += stride) {
      PoolLong<V>(job, segment, begin, end, lane_column + (strip - strip_begin), lanes, shared);
    }
  }
}

}  // namespace raggrad::sparse_segment::on_cuda
