// Finds the rows of an index matrix that are inside a box, and for each the number of such rows before it. Shared by
// forward and gradient on a GPU. Internal to the family.
//
// A block has a tile of 1024 rows. A warp of it has 128 neighbouring rows, 32 in each of four rounds.
#pragma once

#include <cstdint>
#include <cub/device/device_scan.cuh>

#include "raggrad/core/shape.h"
#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/tuning.h"

namespace raggrad::sparse_slice::on_cuda {

using cuda::Blocks;
using cuda::Call;
using cuda::kAllLanes;
using cuda::kWarp;
using cuda::UncapturedCall;

inline constexpr int64_t kTile = kWarp * kWarp;  // each lane has the bits of 32 rows of a tile
inline constexpr int kThreads = cuda::kTuning.slice_threads_per_block;
inline constexpr unsigned kRounds = kTile / kThreads;
static_assert(kTile % kThreads == 0 && kThreads % kWarp == 0);

inline constexpr int kAnyDims = 0;  // the number of columns is known only at run time
template <int kDims>
inline constexpr int kMostDims = kDims == kAnyDims ? Shape::kMaxRank : kDims;

// Calls f.operator()<kDims>() for d columns.
template <class F>
auto WithDims(int64_t d, const F& f) noexcept {
  switch (d) {
    case 1:
      return f.template operator()<1>();
    case 2:
      return f.template operator()<2>();
    case 3:
      return f.template operator()<3>();
    case 4:
      return f.template operator()<4>();
    default:
      return f.template operator()<kAnyDims>();
  }
}

// The word, among those of a tile, with the bits of this warp's rows in a round.
__device__ inline unsigned WordOf(unsigned round) { return threadIdx.x / kWarp * kRounds + round; }
// The row that this thread has in a round.
__device__ inline int64_t RowOf(unsigned round) { return blockIdx.x * kTile + WordOf(round) * kWarp + cuda::Lane(); }

// Writes one bit for each row, padded to whole tiles, and the number of rows inside for each tile. n must be positive.
// Beyond the end the last row is read again: without branches, the loads of all rounds are in flight at once.
template <class Box>
__global__ void MarkInside(const __grid_constant__ Box box, const int64_t* rows, int64_t n, uint32_t* bits,
                           uint64_t* counts) {
  bool inside[kRounds];
#pragma unroll
  for (unsigned round = 0; round < kRounds; ++round) {
    const int64_t i = RowOf(round);
    inside[round] = box.Holds(rows + (i < n ? i : n - 1) * box.d()) && i < n;
  }
  int count = 0;
#pragma unroll
  for (unsigned round = 0; round < kRounds; ++round) {
    const uint32_t word = __ballot_sync(kAllLanes, inside[round]);
    if (cuda::Lane() == 0) bits[blockIdx.x * kWarp + WordOf(round)] = word;
    count += __syncthreads_count(inside[round]);
  }
  if (threadIdx.x == 0) counts[blockIdx.x] = static_cast<uint64_t>(count);
}

// Queues MarkInside, then makes counts[t] the number of rows inside in tiles 0 to t.
template <class Box>
Status FindInside(const Call& call, const Box& box, const int64_t* rows, int64_t n, uint32_t* bits,
                  uint64_t* counts) noexcept {
  const unsigned tiles = Blocks(n, kTile);
  if (Status s = call.Launch(MarkInside<Box>, tiles, kThreads, box, rows, n, bits, counts); !s.ok()) return s;
  return call.RunCub([&](void* memory, size_t& bytes) {
    return cub::DeviceScan::InclusiveSum(memory, bytes, counts, counts, static_cast<int64_t>(tiles), call.stream);
  });
}

// For this thread's row in each round: whether it is inside, and the number of rows inside before it.
struct Places {
  bool inside[kRounds];
  int64_t place[kRounds];
};
__device__ inline Places FindPlaces(const uint32_t* bits, const uint64_t* ends) {
  const unsigned lane = cuda::Lane();
  const uint32_t words = bits[blockIdx.x * kWarp + lane];
  const int64_t begin = blockIdx.x == 0 ? 0 : static_cast<int64_t>(ends[blockIdx.x - 1]);
  Places places;
#pragma unroll
  for (unsigned round = 0; round < kRounds; ++round) {
    const unsigned word = WordOf(round);
    const uint32_t own = __shfl_sync(kAllLanes, words, word);
    const int words_before = __reduce_add_sync(kAllLanes, lane < word ? __popc(words) : 0);
    places.inside[round] = (own >> lane & 1) != 0;
    places.place[round] = begin + words_before + __popc(own & ((1U << lane) - 1));
  }
  return places;
}

}  // namespace raggrad::sparse_slice::on_cuda
