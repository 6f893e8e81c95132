// A stable radix sort by row. It is made for some million contributions, where CUB's takes twice as long: digits have
// up to 10 bits, so that two passes do for a million rows; a tile is as large as one multiprocessor can hold, so that
// all of them run at once; and since all of them arrive together at the question how many contributions earlier tiles
// have, they ask in two steps, within families of tiles and between families.
//
// A pass: every tile counts its digits, finds out how many of each there are in earlier tiles, sorts its contributions
// in shared memory and writes them where they belong.
#pragma once

#include <bit>
#include <cub/block/block_scan.cuh>
#include <cuda/atomic>

#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_segment/plan/device_plan.h"

namespace raggrad::sparse_segment::on_cuda {

using cuda::kAllLanes;
using cuda::kTuning;
using cuda::kWarp;

inline constexpr int kSortThreads = kTuning.sort_threads_per_block;
inline constexpr int kMaxDigitBits = kTuning.sort_max_digit_bits;
inline constexpr int kMaxDigits = 1 << kMaxDigitBits;
inline constexpr int kMaxPasses = (32 + kMaxDigitBits - 1) / kMaxDigitBits;
inline constexpr int kFewRounds = kTuning.sort_few_contributions_per_thread;
inline constexpr int kManyRounds = kTuning.sort_many_contributions_per_thread;
inline constexpr int kFamily = kTuning.sort_tiles_per_family;
static_assert(kMaxDigits <= kSortThreads, "a block has a thread for each digit");
static_assert(kSortThreads * kManyRounds <= UINT16_MAX, "counts within a tile have 16 bits");

struct SortShape {
  int passes;
  int digit_bits;
  int rounds;
  bool wide;  // counts do not fit into 30 bits
  int64_t tiles;

  // table_rows > 0
  SortShape(int64_t n, int64_t table_rows) noexcept {
    constexpr int64_t kMultiprocessors = kTuning.multiprocessors;
    const int bits = std::max(static_cast<int>(std::bit_width(static_cast<uint32_t>(table_rows - 1))), 1);
    passes = (bits + kMaxDigitBits - 1) / kMaxDigitBits;
    digit_bits = (bits + passes - 1) / passes;
    rounds = n <= kMultiprocessors * kSortThreads * kFewRounds ? kFewRounds : kManyRounds;
    wide = n >= int64_t{1} << 30;
    tiles = (n + rounds * kSortThreads - 1) / (rounds * kSortThreads);
  }
  // Of a pass: for the tiles, then for the families.
  int64_t states() const noexcept { return (tiles + (tiles + kFamily - 1) / kFamily) << digit_bits; }
};

// The digit of a row that a pass looks at.
struct Digit {
  int shift;
  uint32_t mask;

  __device__ uint32_t operator()(uint32_t row) const { return row >> shift & mask; }
};

template <class Word>
struct SortPass {
  const Contribution* contributions;
  int64_t n;
  Digit digit;
  const uint32_t* histogram;  // how many contributions have each digit
  uint32_t* ticket;           // the next tile, so that earlier tiles have been started; 0 at first
  Word* tiles;                // [tiles, digits]: states, see below; 0 at first
  Word* families;             // [families, digits]
  Contribution* sorted;

  __device__ uint32_t digits() const { return digit.mask + 1; }
};

// What a tile or a family of tiles says of a digit, in one word: a count, and what it is the count of.
template <class Word>
struct State {
  static constexpr Word kItsOwn = Word{1} << (8 * sizeof(Word) - 2);
  static constexpr Word kUpToItsEnd = kItsOwn << 1;

  static constexpr __device__ Word Count(Word word) { return word & (kItsOwn - 1); }
  static __device__ Word Load(Word* state) { return Shared(*state).load(::cuda::memory_order_relaxed); }
  static __device__ void Store(Word* state, Word word) { Shared(*state).store(word, ::cuda::memory_order_relaxed); }

 private:
  using Shared = ::cuda::atomic_ref<Word, ::cuda::thread_scope_device>;
};

// How many contributions of the tiles before this one, in its family, have the digit. Waits until all of them have said
// it.
template <class Word>
__device__ Word CountInFamily(const SortPass<Word>& pass, uint32_t tile, uint32_t digit) {
  const uint32_t earlier = tile % kFamily;
  Word* const states = pass.tiles + int64_t{tile - earlier} * pass.digits() + digit;
  while (true) {
    Word sum = 0;
    bool complete = true;
#pragma unroll
    for (uint32_t t = 0; t + 1 < kFamily; ++t) {
      const Word state = t < earlier ? State<Word>::Load(states + t * pass.digits()) : State<Word>::kItsOwn;
      sum += State<Word>::Count(state);
      complete = complete && state != 0;
    }
    if (complete) return sum;
  }
}

// The same for the families before this one.
template <class Word>
__device__ Word CountInEarlierFamilies(const SortPass<Word>& pass, uint32_t family, uint32_t digit) {
  constexpr int kAtOnce = kTuning.sort_families_at_once;
  Word sum = 0;
  while (family > 0) {
    Word states[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t earlier = int64_t{family} - 1 - k;
      states[k] = earlier >= 0 ? State<Word>::Load(pass.families + earlier * pass.digits() + digit) : 0;
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (states[k] == 0) break;  // is asked again
      sum += State<Word>::Count(states[k]);
      if (states[k] >= State<Word>::kUpToItsEnd) return sum;
      --family;
    }
  }
  return sum;
}

// How many contributions of all tiles before this one have the digit; it has `count` of them itself, and has said so.
template <class Word>
__device__ Word CountBefore(const SortPass<Word>& pass, uint32_t tile, uint32_t digit, uint32_t count) {
  const uint32_t family = tile / kFamily;
  const bool speaks_for_family = tile % kFamily == kFamily - 1;
  Word* const state = pass.families + int64_t{family} * pass.digits() + digit;
  const Word in_family = CountInFamily(pass, tile, digit);
  if (speaks_for_family) State<Word>::Store(state, State<Word>::kItsOwn | (in_family + count));
  const Word before = CountInEarlierFamilies(pass, family, digit) + in_family;
  if (speaks_for_family) State<Word>::Store(state, State<Word>::kUpToItsEnd | (before + count));
  return before;
}

// How many earlier contributions of the warp have the same digit. `counts` is the warp's, and is kept.
__device__ inline uint32_t RankInWarp(uint16_t* counts, bool exists, uint32_t digit) {
  const uint32_t shift = digit % 2 * 16;
  uint32_t rank = 0;
  if (exists) rank = atomicAdd(reinterpret_cast<uint32_t*>(counts) + digit / 2, 1U << shift) >> shift & 0xffff;
  __syncwarp();
  const uint32_t after = counts[digit];
  // Lanes with the same digit, which are few, were served in any order, all but the last of them show it, and get ranks
  // in theirs.
  for (uint32_t unordered = __ballot_sync(kAllLanes, exists && after != rank + 1); unordered != 0;) {
    const uint32_t shared_digit = __shfl_sync(kAllLanes, digit, __ffs(unordered) - 1);
    const bool is_peer = exists && digit == shared_digit;
    const uint32_t peers = __ballot_sync(kAllLanes, is_peer);
    if (is_peer) rank = after - __popc(peers) + __popc(peers & ((1U << cuda::Lane()) - 1));
    unordered &= ~peers;
  }
  return rank;
}

// Counts per warp become counts of the warps before; their sum. For one digit.
__device__ inline uint32_t SumOverWarps(uint16_t* counts, uint32_t digits) {
  constexpr int kWarps = kSortThreads / kWarp, kAtOnce = kTuning.sort_warps_at_once;
  static_assert(kWarps % kAtOnce == 0);
  uint32_t sum = 0;
  for (int warp = 0; warp < kWarps; warp += kAtOnce, counts += kAtOnce * digits) {
    uint32_t in_warp[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) in_warp[k] = counts[k * digits];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      counts[k * digits] = static_cast<uint16_t>(sum);
      sum += in_warp[k];
    }
  }
  return sum;
}

// A block for each tile.
template <int kRounds, class Word>
__global__ void __launch_bounds__(kSortThreads) SortPassKernel(const SortPass<Word> pass) {
  constexpr uint32_t kWarps = kSortThreads / kWarp, kTileSize = kSortThreads * kRounds;
  using Scan = cub::BlockScan<uint64_t, kSortThreads, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ typename Scan::TempStorage scan_storage;
  __shared__ uint32_t offsets[kMaxDigits];
  __shared__ uint32_t ticket;
  // First counts of digits, one row per warp, then the sorted contributions.
  auto* const counts = cuda::DynamicShared<uint16_t>();
  auto* const sorted = cuda::DynamicShared<Contribution>();

  cuda::LetNextKernelStart();
  const uint32_t thread = threadIdx.x, warp = thread / kWarp, digits = pass.digits();
  const bool has_digit = thread < digits;
  if (thread == 0) ticket = atomicAdd(pass.ticket, 1U);
  for (uint32_t k = thread; k < kWarps * digits; k += kSortThreads) counts[k] = 0;
  cuda::AwaitKernelBefore();
  const uint32_t everywhere = has_digit ? pass.histogram[thread] : 0;
  __syncthreads();
  const uint32_t tile = ticket;
  const int64_t begin = int64_t{tile} * kTileSize;
  const auto size = static_cast<uint32_t>(pass.n - begin < kTileSize ? pass.n - begin : kTileSize);
  // A warp has kRounds * kWarp neighbours, a round kWarp of them.
  const uint32_t first = warp * (kRounds * kWarp) + cuda::Lane();
  const int mine = first < size ? static_cast<int>((size - first + kWarp - 1) / kWarp) : 0;
  uint16_t* const warp_counts = counts + warp * digits;

  Contribution contributions[kRounds];
  uint32_t places[kRounds];
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    if (r < mine) contributions[r] = pass.contributions[begin + first + r * kWarp];
  }
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    places[r] = RankInWarp(warp_counts, r < mine, r < mine ? pass.digit(contributions[r].row) : 0);
  }
  __syncthreads();

  uint32_t count = 0;
  if (has_digit) {
    count = SumOverWarps(counts + thread, digits);
    State<Word>::Store(pass.tiles + int64_t{tile} * digits + thread, State<Word>::kItsOwn | count);
  }
  // Both at once: where the digit begins in the tile, and in all of the output.
  uint64_t begins = 0, total = 0;
  Scan(scan_storage).ExclusiveSum(uint64_t{everywhere} << 32 | count, begins, total);
  const auto begins_in_tile = static_cast<uint32_t>(begins);
  if (has_digit) offsets[thread] = begins_in_tile;
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    if (r >= mine) continue;
    const uint32_t digit = pass.digit(contributions[r].row);
    places[r] += offsets[digit] + warp_counts[digit];
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    if (r < mine) sorted[places[r]] = contributions[r];
  }
  if (has_digit) {
    const auto before = static_cast<uint32_t>(CountBefore(pass, tile, thread, count));
    offsets[thread] = static_cast<uint32_t>(begins >> 32) + before - begins_in_tile;
  }
  __syncthreads();
  for (uint32_t k = thread; k < size; k += kSortThreads) {
    const Contribution contribution = sorted[k];
    pass.sorted[offsets[pass.digit(contribution.row)] + k] = contribution;
  }
}

template <int kRounds, class Word>
Status QueueSortPass(const cuda::Call& call, const SortShape& shape, const SortPass<Word>& pass) noexcept {
  const size_t counts = sizeof(uint16_t) * kSortThreads / kWarp << shape.digit_bits;
  const size_t shared = std::max(counts, sizeof(Contribution) * kSortThreads * kRounds);
  return call.LaunchEarly(SortPassKernel<kRounds, Word>, static_cast<unsigned>(shape.tiles), kSortThreads, shared,
                          pass);
}

}  // namespace raggrad::sparse_segment::on_cuda
