// The last step of the sums: rows that extend over several groups of contributions.
#pragma once

#include "raggrad/ops/sparse_segment/grad/sum_groups.cuh"

namespace raggrad::sparse_segment::on_cuda {

// The carries of a long row are summed in this many parts. Defines results: it fixes the order of sums.
inline constexpr int kParts = 16;
inline constexpr int kCombineColumns = 32;  // one for each lane of a warp
static_assert(kCombineColumns == cuda::kWarp);

// The number of groups after `group` into which its last row extends; 0 if that row began before `group`. Called by all
// lanes of a warp.
template <class T>
__device__ int64_t GroupsAfter(const SumJob<T>& job, int64_t group, int64_t groups) {
  if (group + 1 >= groups) return 0;
  const int64_t next = (group + 1) * kContributionsPerGroup;
  const uint32_t row = job.contributions[next - 1].row;
  const bool began_before = group > 0 && job.contributions[group * kContributionsPerGroup - 1].row == row;
  if (began_before || job.contributions[next].row != row) return 0;
  // The first contribution of group `in` is of this row. That of group `out` is not, or there is no such group. The
  // first round probes the next 32 groups, since few rows extend further.
  int64_t in = group + 1;
  int64_t out = groups;
  for (int64_t step = 1; out - in > 1; step = (out - in + 31) / 32) {
    const int64_t probe = in + step * (static_cast<int64_t>(threadIdx.x) + 1);
    const bool same = probe < out && job.contributions[probe * kContributionsPerGroup].row == row;
    const uint32_t all_same = __ballot_sync(~0U, same);
    in += step * __popc(all_same);
    if (all_same != ~0U) out = min(out, in + step);
  }
  return in - group;
}

// sum + values[0] + values[stride] + ..., `count` values, left to right.
template <class A>
__device__ A AddEvery(const A* values, int64_t count, int64_t stride, A sum) {
  for (int64_t i = 0; i < count; i += kBatch) {
    A x[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (i + b < count) x[b] = values[(i + b) * stride];
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (i + b < count) sum = cuda::Add(sum, x[b]);
    }
  }
  return sum;
}

// A block has kParts warps, one for each of kParts groups, and the kCombineColumns columns of strip blockIdx.y +
// first_strip. A warp completes the row that begins in its group and extends into later ones: the tail of that group,
// plus part 0, plus part 1, ..., where part k is the sum of carries k, k + kParts, ... of the later groups, left to
// right. With up to kParts carries every part is one value, and the warp adds them by itself. A longer row has one warp
// of the block for each part. A block has at most one such row, because the row extends beyond the block's groups.
template <class T, bool kUpdate, class Sums>
__global__ void CombineGroupsKernel(const SumJob<T> job, int64_t groups, int64_t first_strip) {
  using Part = typename Sums::Part;
  __shared__ int64_t long_first;
  __shared__ int64_t long_count;
  __shared__ Part parts[Sums::kParts][kParts][kCombineColumns];
  const int64_t column = (first_strip + blockIdx.y) * kCombineColumns + threadIdx.x;
  const bool has_column = column < job.width;
  const int64_t stride = Sums::kParts * job.width;  // from group to group
  const auto carry = [&](int64_t group, int p) {
    return static_cast<const Part*>(job.carries) + group * stride + p * job.width + column;
  };
  const auto tail = [&](int64_t group, int p) {
    return static_cast<const Part*>(job.tails)[group * stride + p * job.width + column];
  };
  const auto finish_row = [&](int64_t group, const Sums& sums) {
    typename Sums::Grid grid = {};
    if constexpr (std::is_same_v<Sums, ExactSums<T, 1>>) {
      grid = GridOf(job.spanning[group].largest, job.spanning[group].count);
    }
    const SumType<T> rounded[1] = {sums.Round(0, grid)};
    job.sink.template Take<1, kUpdate>(job.unique_before[group + 1] - 1,
                                       job.contributions[(group + 1) * kContributionsPerGroup - 1].row, column,
                                       job.width, rounded);
  };

  if (threadIdx.x == 0 && threadIdx.y == 0) long_count = 0;
  __syncthreads();
  const int64_t group = int64_t{blockIdx.x} * kParts + threadIdx.y;
  const int64_t count = GroupsAfter(job, group, groups);
  cuda::AwaitKernelBefore();  // it writes carries and tails
  if (count > kParts) {
    if (threadIdx.x == 0) {
      long_first = group;
      long_count = count;
    }
  } else if (count > 0 && has_column) {
    Sums sums;
    for (int p = 0; p < Sums::kParts; ++p) {
      sums.of[p][0] = AddEvery(carry(group + 1, p), count, stride, tail(group, p));
    }
    finish_row(group, sums);
  }
  __syncthreads();
  if (long_count == 0) return;

  const int part = static_cast<int>(threadIdx.y);
  if (has_column) {
    const int64_t in_part = (long_count - part + kParts - 1) / kParts;
    for (int p = 0; p < Sums::kParts; ++p) {
      const Part* const carries = carry(long_first + 1 + part, p);
      parts[p][part][threadIdx.x] = AddEvery(carries + kParts * stride, in_part - 1, kParts * stride, carries[0]);
    }
  }
  __syncthreads();
  if (part == 0 && has_column) {
    Sums sums;
    for (int p = 0; p < Sums::kParts; ++p) {
      sums.of[p][0] = AddEvery(&parts[p][0][threadIdx.x], kParts, kCombineColumns, tail(long_first, p));
    }
    finish_row(long_first, sums);
  }
}

}  // namespace raggrad::sparse_segment::on_cuda
