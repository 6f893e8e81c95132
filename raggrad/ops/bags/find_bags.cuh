// Finding the bags of ids on a GPU. Internal to the library.
#pragma once

#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/tuning.h"

namespace raggrad::bags::on_cuda {

// Ids of a block of FindBags, for blocks of item_threads_per_block threads.
inline constexpr int64_t kIdsPerBlock =
    int64_t{cuda::kTuning.item_threads_per_block} * cuda::kTuning.cut_ids_per_thread;

// The last of the bags [begin, end) that starts at or before `place`, or begin - 1.
template <class Offset>
__device__ int64_t FindBag(const Offset* offsets, int64_t begin, int64_t end, int64_t place) {
  while (begin < end) {
    const int64_t middle = begin + (end - begin) / 2;
    if (static_cast<int64_t>(offsets[middle]) <= place) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin - 1;
}

// The same by all lanes of a warp. It looks at 32 offsets at once: 4 rounds of loads for a million bags, not 20.
template <class Offset>
__device__ int64_t FindBagByWarp(const Offset* offsets, int64_t begin, int64_t end, int64_t place) {
  const auto count_starts = [&](int64_t step) {
    const int64_t probe = begin + step * cuda::Lane();
    return __popc(__ballot_sync(cuda::kAllLanes, probe < end && static_cast<int64_t>(offsets[probe]) <= place));
  };
  while (end - begin > cuda::kWarp) {
    const int64_t step = (end - begin + cuda::kWarp - 1) / cuda::kWarp;
    const int count = count_starts(step);
    if (count == 0) return begin - 1;
    end = min(begin + count * step, end);
    begin += (count - 1) * step + 1;
  }
  return begin + count_starts(1) - 1;
}

// Writes the bags of the block's ids, whose places among all ids ascend; 0 for ids before the first bag. Most blocks
// have ids of few bags: two warps search all offsets, the threads only those between, and a thread searches again only
// where one of its ids is in another bag than the one before. By all threads of the block. segment_ids: aligned to 16
// bytes.
template <class Offset, class PlaceOf>
__device__ void FindBags(const Offset* offsets, int64_t bags, int64_t n, const PlaceOf& place_of,
                         int32_t* segment_ids) {
  constexpr int kAtOnce = 4;  // 16 bytes
  static_assert(cuda::kTuning.cut_ids_per_thread % kAtOnce == 0);
  __shared__ int64_t ends[2];
  const int64_t first = int64_t{blockIdx.x} * kIdsPerBlock;
  if (first >= n) return;
  const int64_t end = min(first + kIdsPerBlock, n);
  if (const unsigned warp = threadIdx.x / cuda::kWarp; warp < 2) {
    const int64_t bag = FindBagByWarp(offsets, 0, bags, place_of(warp == 0 ? first : end - 1));
    if (cuda::Lane() == 0) ends[warp] = bag;
  }
  __syncthreads();
  const int64_t last_bag = ends[1];
  for (int64_t i = first + threadIdx.x * kAtOnce; i < end; i += blockDim.x * kAtOnce) {
    int64_t bag = FindBag(offsets, ends[0] + 1, last_bag + 1, place_of(i));
    const int count = static_cast<int>(min(end - i, int64_t{kAtOnce}));
    int32_t found[kAtOnce];
    for (int k = 0; k < count; ++k) {
      const int64_t place = place_of(i + k);
      if (bag < last_bag && static_cast<int64_t>(offsets[bag + 1]) <= place) {
        bag = FindBag(offsets, bag + 1, last_bag + 1, place);
      }
      found[k] = static_cast<int32_t>(max(bag, int64_t{0}));
    }
    if (count == kAtOnce) {
      *reinterpret_cast<int4*>(segment_ids + i) = make_int4(found[0], found[1], found[2], found[3]);
    } else {
      for (int k = 0; k < count; ++k) segment_ids[i + k] = found[k];
    }
  }
}

// Whether the offset of a bag is wrong: they ascend from 0 to at most n.
template <class Offset>
__device__ bool IsBadOffset(const Offset* offsets, int64_t bag, int64_t n) {
  const auto offset = static_cast<int64_t>(offsets[bag]);
  return bag == 0 ? offset != 0 : offset < static_cast<int64_t>(offsets[bag - 1]) || offset > n;
}

}  // namespace raggrad::bags::on_cuda
