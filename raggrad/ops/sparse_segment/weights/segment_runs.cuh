// Sums over the ids of each segment, left to right or with the same bits in every order. Internal to the family.
#pragma once

#include "raggrad/cuda/arithmetic.cuh"
#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_segment/plan/plan_cuda.cuh"
#include "raggrad/ops/sparse_segment/weights/order_free_sum.h"

namespace raggrad::sparse_segment::on_cuda {

// Ids whose segments are runs: in their own order if segment ids ascend, or sorted by segment.
struct SegmentRuns {
  Ids segment_ids;
  int64_t n;
  int64_t num_segments;
  const Contribution* by_segment = nullptr;  // QueueBySegment's; null if segment ids are known to ascend
  const uint32_t* only_if = nullptr;         // null, or a word: by_segment is not used if it is 0

  __device__ bool IsSorted() const { return by_segment != nullptr && (only_if == nullptr || *only_if != 0); }
  // Segment (row) and position (segment) of the k-th id.
  __device__ Contribution At(int64_t k, bool sorted) const {
    if (sorted) return by_segment[k];
    return {OrZero(segment_ids[k], num_segments), static_cast<uint32_t>(k)};
  }
};

// kSums terms of one id.
template <class A, int kSums>
struct Terms {
  A of[kSums];

  __device__ Terms FromLane(int lane) const {
    Terms result;
    for (int s = 0; s < kSums; ++s) result.of[s] = __shfl_sync(cuda::kAllLanes, of[s], lane);
    return result;
  }
};

// Sums of terms, left to right from +0.
template <class A, int kSums>
struct LeftToRight {
  A of[kSums];

  __device__ void Add(const Terms<A, kSums>& terms) {
    for (int s = 0; s < kSums; ++s) of[s] = cuda::Add(of[s], terms.of[s]);
  }
};

// Sums that have the same bits in every order. A run is walked twice: first with `looking`.
template <class A, int kSums>
struct OrderFree {
  OrderFreeSum<A> sums[kSums];
  bool looking;

  __device__ void Add(const Terms<A, kSums>& terms) {
    for (int s = 0; s < kSums; ++s) {
      const A term = cuda::Flush(terms.of[s]);
      if (looking) {
        sums[s].Look(term);
      } else {
        sums[s].Add(term);
      }
    }
  }
};

// The value that a lane has, whatever its type.
template <class T>
__device__ T FromLane(const T& value, int lane) {
  static_assert(sizeof(T) % sizeof(uint32_t) == 0);
  constexpr int kWords = sizeof(T) / sizeof(uint32_t);
  struct Words {
    uint32_t of[kWords];
  };
  auto words = __builtin_bit_cast(Words, value);
  for (uint32_t& word : words.of) word = __shfl_sync(cuda::kAllLanes, word, lane);
  return __builtin_bit_cast(T, words);
}

// Adds the terms of the ids from `next` on to a sum that a whole warp has, as long as they are of the segment. Each
// lane loads one term of 32, and the next 32 are in flight while these are added. Moves `next` behind the last id.
template <class Sums, class Load>
__device__ void SumLongRun(const SegmentRuns& runs, bool sorted, uint32_t segment, const Load& load, int64_t& next,
                           Sums& sums) {
  struct Round {
    decltype(load(0U)) terms;
    int count;  // of ids that are still of the segment
  };
  const auto load_round = [&](int64_t first) {
    const int64_t k = first + cuda::Lane();
    Round round = {};
    bool same = false;
    if (k < runs.n) {
      const Contribution id = runs.At(k, sorted);
      same = id.row == segment;
      if (same) round.terms = load(id.segment);
    }
    const uint32_t others = ~__ballot_sync(cuda::kAllLanes, same);
    round.count = others == 0 ? static_cast<int>(cuda::kWarp) : __ffs(static_cast<int>(others)) - 1;
    return round;
  };
  Round round = load_round(next);
  while (round.count > 0) {
    next += round.count;
    const Round after = round.count == cuda::kWarp ? load_round(next) : Round{};
    for (int lane = 0; lane < round.count; ++lane) sums.Add(round.terms.FromLane(lane));
    round = after;
  }
}

// Threads of a block that walks runs, and the ids of a block.
inline constexpr int kRunThreads = cuda::kTuning.item_threads_per_block;
inline constexpr int kRunIds = kRunThreads * cuda::kTuning.run_ids_per_thread;

// The runs that begin at the ids of a block, in shared memory, one after the other in any order. Most ids begin no run,
// and a warp takes as long for one run as for 32.
struct BlockRuns {
  uint16_t begins[kRunIds];
  int count;
  static_assert(kRunIds <= UINT16_MAX + 1);

  // By all threads of the block.
  __device__ void Find(const SegmentRuns& runs, bool sorted) {
    constexpr int kAtOnce = kRunIds / kRunThreads;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    const int64_t block = int64_t{blockIdx.x} * kRunIds;
    bool is_begin[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t id = block + k * kRunThreads + threadIdx.x;
      is_begin[k] = id < runs.n && (id == 0 || runs.At(id - 1, sorted).row != runs.At(id, sorted).row);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const uint32_t lanes = __ballot_sync(cuda::kAllLanes, is_begin[k]);
      if (lanes == 0) continue;
      int place = cuda::Lane() == 0 ? atomicAdd(&count, __popc(lanes)) : 0;
      place = __shfl_sync(cuda::kAllLanes, place, 0) + __popc(lanes & ((1U << cuda::Lane()) - 1));
      if (is_begin[k]) begins[place] = static_cast<uint16_t>(k * kRunThreads + threadIdx.x);
    }
    __syncthreads();
  }
};

// Sums the run that begins at id `first`; -1: this thread has none. Calls finish(segment, sums, length). load(position)
// gives an id's terms. A thread sums a short run by itself, its warp a long one. By all threads of a warp.
template <class Sums, class Load, class Finish>
__device__ void SumRun(const SegmentRuns& runs, bool sorted, int64_t first, Sums sums, const Load& load,
                       const Finish& finish) {
  constexpr int64_t kShort = 64;
  constexpr int kAtOnce = 8;
  bool open = first >= 0;  // the run is not summed yet
  Contribution id = {};
  if (open) id = runs.At(first, sorted);
  int64_t next = first;
  while (open && next - first < kShort) {
    // Loads do not wait for each other: those behind the end of the run are not used.
    Contribution ids[kAtOnce];
    decltype(load(0U)) terms[kAtOnce];
#pragma unroll
    for (int b = 0; b < kAtOnce; ++b) ids[b] = next + b < runs.n ? runs.At(next + b, sorted) : Contribution{~id.row, 0};
#pragma unroll
    for (int b = 0; b < kAtOnce; ++b) terms[b] = load(ids[b].segment);
    int count = 0;
#pragma unroll
    for (int b = 0; b < kAtOnce; ++b) count += count == b && ids[b].row == id.row ? 1 : 0;
#pragma unroll
    for (int b = 0; b < kAtOnce; ++b) {
      if (b < count) sums.Add(terms[b]);
    }
    next += count;
    if (count == kAtOnce) continue;
    open = false;
    finish(id.row, sums, next - first);
  }
  for (uint32_t left = __ballot_sync(cuda::kAllLanes, open); left != 0; left &= left - 1) {
    const int lane = __ffs(static_cast<int>(left)) - 1;
    const uint32_t segment = __shfl_sync(cuda::kAllLanes, id.row, lane);
    int64_t end = __shfl_sync(cuda::kAllLanes, next, lane);
    Sums total = FromLane(sums, lane);
    SumLongRun(runs, sorted, segment, load, end, total);
    if (static_cast<int>(cuda::Lane()) == lane) finish(segment, total, end - first);
  }
}

// Calls finish(segment, sums, length) once for each segment that has ids. `sums` are Terms: the sums of load(position),
// left to right or order-free. By all threads of a one-dimensional grid of blocks for kRunIds ids each.
template <class A, int kSums, bool kOrderFree, class Load, class Finish>
__device__ void SumSegments(const SegmentRuns& runs, const Load& load, const Finish& finish) {
  __shared__ BlockRuns block_runs;
  const bool sorted = runs.IsSorted();
  block_runs.Find(runs, sorted);
  for (int run = static_cast<int>(threadIdx.x); run - static_cast<int>(threadIdx.x) < block_runs.count;
       run += kRunThreads) {
    const int64_t first = run < block_runs.count ? int64_t{blockIdx.x} * kRunIds + block_runs.begins[run] : int64_t{-1};
    Terms<A, kSums> result;
    if constexpr (kOrderFree) {
      OrderFree<A, kSums> start = {};
      start.looking = true;
      SumRun(runs, sorted, first, start, load, [&](uint32_t, const auto& looked, int64_t) { start = looked; });
      start.looking = false;
      for (auto& sum : start.sums) sum.BeginToAdd();
      SumRun(runs, sorted, first, start, load, [&](uint32_t segment, const auto& sums, int64_t length) {
        for (int s = 0; s < kSums; ++s) result.of[s] = sums.sums[s].Round();
        finish(segment, result, length);
      });
    } else {
      SumRun(runs, sorted, first, LeftToRight<A, kSums>{}, load,
             [&](uint32_t segment, const auto& sums, int64_t length) {
               for (int s = 0; s < kSums; ++s) result.of[s] = sums.of[s];
               finish(segment, result, length);
             });
    }
  }
}

}  // namespace raggrad::sparse_segment::on_cuda
