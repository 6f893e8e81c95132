// A stable radix sort of contributions by row. CUB's takes twice as long for a million contributions. Three things make
// the difference. Digits have up to 10 bits, so that two passes sort a million rows. A tile is as large as one
// multiprocessor can hold, so that all tiles run at once. A tile has to add up the counts of all earlier tiles, which
// are not complete yet when all run at once; it does so in two steps, within its bundle of 16 tiles and over earlier
// bundles.
//
// In a pass every tile counts its digits, adds up the counts of earlier tiles, sorts its contributions in shared memory
// and writes them to their places.
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
inline constexpr int kBundle = kTuning.sort_tiles_per_bundle;
static_assert(kMaxDigits <= kSortThreads, "a block has a thread for each digit");
static_assert(kSortThreads * kManyRounds <= UINT16_MAX, "counts within a tile have 16 bits");

struct SortShape {
  int passes;
  int digit_bits;
  int rounds;
  bool wide;  // counts need more than 30 bits
  int64_t tiles;

  // table_rows must be positive.
  SortShape(int64_t n, int64_t table_rows) noexcept {
    constexpr int64_t kMultiprocessors = kTuning.multiprocessors;
    const int bits = std::max(static_cast<int>(std::bit_width(static_cast<uint32_t>(table_rows - 1))), 1);
    passes = (bits + kMaxDigitBits - 1) / kMaxDigitBits;
    digit_bits = (bits + passes - 1) / passes;
    rounds = n <= kMultiprocessors * kSortThreads * kFewRounds ? kFewRounds : kManyRounds;
    wide = n >= int64_t{1} << 30;
    tiles = (n + rounds * kSortThreads - 1) / (rounds * kSortThreads);
  }
  // Words of states in a pass: those of the tiles, then those of the bundles.
  int64_t states() const noexcept { return (tiles + (tiles + kBundle - 1) / kBundle) << digit_bits; }
};

// Extracts the digit that a pass sorts by.
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
  const uint32_t* histogram;  // contributions of each digit
  uint32_t* ticket;           // the next tile; blocks draw it, so that earlier tiles have always started; 0 at first
  Word* tiles;                // [tiles, digits]: States; 0 at first
  Word* bundles;              // [bundles, digits]: States; 0 at first
  Contribution* sorted;
  const uint32_t* only_if;  // null, or a word: nothing is sorted if it is 0

  __device__ uint32_t digits() const { return digit.mask + 1; }
};

// The count of a digit that a tile or bundle publishes, in one word with a flag for its meaning. 0: not yet published.
template <class Word>
struct State {
  static constexpr Word kItsOwn = Word{1} << (8 * sizeof(Word) - 2);  // the count of this tile or bundle alone
  static constexpr Word kUpToItsEnd = kItsOwn << 1;                   // with all bundles before

  static constexpr __device__ Word Count(Word word) { return word & (kItsOwn - 1); }
  static __device__ Word Load(Word* state) { return Shared(*state).load(::cuda::memory_order_relaxed); }
  static __device__ void Store(Word* state, Word word) { Shared(*state).store(word, ::cuda::memory_order_relaxed); }

 private:
  using Shared = ::cuda::atomic_ref<Word, ::cuda::thread_scope_device>;
};

// The number of contributions with the digit in earlier tiles of the same bundle. Waits until all of them have
// published their counts.
template <class Word>
__device__ Word CountInBundle(const SortPass<Word>& pass, uint32_t tile, uint32_t digit) {
  const uint32_t earlier = tile % kBundle;
  Word* const states = pass.tiles + int64_t{tile - earlier} * pass.digits() + digit;
  while (true) {
    Word sum = 0;
    bool complete = true;
#pragma unroll
    for (uint32_t t = 0; t + 1 < kBundle; ++t) {
      const Word state = t < earlier ? State<Word>::Load(states + t * pass.digits()) : State<Word>::kItsOwn;
      sum += State<Word>::Count(state);
      complete = complete && state != 0;
    }
    if (complete) return sum;
  }
}

// The same for all earlier bundles.
template <class Word>
__device__ Word CountInEarlierBundles(const SortPass<Word>& pass, uint32_t bundle, uint32_t digit) {
  constexpr int kAtOnce = kTuning.sort_bundles_at_once;
  Word sum = 0;
  while (bundle > 0) {
    Word states[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t earlier = int64_t{bundle} - 1 - k;
      states[k] = earlier >= 0 ? State<Word>::Load(pass.bundles + earlier * pass.digits() + digit) : 0;
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (states[k] == 0) break;  // not published yet: loaded again in the next round
      sum += State<Word>::Count(states[k]);
      if (states[k] >= State<Word>::kUpToItsEnd) return sum;
      --bundle;
    }
  }
  return sum;
}

// The number of contributions with the digit in all earlier tiles. This tile has `count` and has published it. The last
// tile of a bundle publishes for the bundle.
template <class Word>
__device__ Word CountBefore(const SortPass<Word>& pass, uint32_t tile, uint32_t digit, uint32_t count) {
  const uint32_t bundle = tile / kBundle;
  const bool speaks_for_bundle = tile % kBundle == kBundle - 1;
  Word* const state = pass.bundles + int64_t{bundle} * pass.digits() + digit;
  const Word in_bundle = CountInBundle(pass, tile, digit);
  if (speaks_for_bundle) State<Word>::Store(state, State<Word>::kItsOwn | (in_bundle + count));
  const Word before = CountInEarlierBundles(pass, bundle, digit) + in_bundle;
  if (speaks_for_bundle) State<Word>::Store(state, State<Word>::kUpToItsEnd | (before + count));
  return before;
}

// The number of earlier contributions of the warp with the same digit. Updates the warp's counts.
__device__ inline uint32_t RankInWarp(uint16_t* counts, bool exists, uint32_t digit) {
  const uint32_t shift = digit % 2 * 16;
  uint32_t rank = 0;
  if (exists) rank = atomicAdd(reinterpret_cast<uint32_t*>(counts) + digit / 2, 1U << shift) >> shift & 0xffff;
  __syncwarp();
  const uint32_t after = counts[digit];
  // Atomics serve lanes with the same digit in any order. All of them but the last notice it, because the count is more
  // than their rank + 1. Then the warp puts them in order. Few lanes share a digit.
  for (uint32_t unordered = __ballot_sync(kAllLanes, exists && after != rank + 1); unordered != 0;) {
    const uint32_t shared_digit = __shfl_sync(kAllLanes, digit, __ffs(unordered) - 1);
    const bool is_peer = exists && digit == shared_digit;
    const uint32_t peers = __ballot_sync(kAllLanes, is_peer);
    if (is_peer) rank = after - __popc(peers) + __popc(peers & ((1U << cuda::Lane()) - 1));
    unordered &= ~peers;
  }
  return rank;
}

// Replaces each warp's count of a digit by the sum of the counts of earlier warps, and returns the sum of all.
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

// Each block sorts one tile.
template <int kRounds, class Word>
__global__ void __launch_bounds__(kSortThreads) SortPassKernel(const SortPass<Word> pass) {
  constexpr uint32_t kWarps = kSortThreads / kWarp, kTileSize = kSortThreads * kRounds;
  using Scan = cub::BlockScan<uint64_t, kSortThreads, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ typename Scan::TempStorage scan_storage;
  __shared__ uint32_t offsets[kMaxDigits];
  __shared__ uint32_t ticket;
  // Shared memory first has the counts of digits, one row for each warp, and later the sorted contributions.
  auto* const counts = cuda::DynamicShared<uint16_t>();
  auto* const sorted = cuda::DynamicShared<Contribution>();

  cuda::LetNextKernelStart();
  const uint32_t thread = threadIdx.x, warp = thread / kWarp, digits = pass.digits();
  const bool has_digit = thread < digits;
  if (thread == 0) ticket = atomicAdd(pass.ticket, 1U);
  for (uint32_t k = thread; k < kWarps * digits; k += kSortThreads) counts[k] = 0;
  cuda::AwaitKernelBefore();
  if (pass.only_if != nullptr && *pass.only_if == 0) return;
  const uint32_t everywhere = has_digit ? pass.histogram[thread] : 0;
  __syncthreads();
  const uint32_t tile = ticket;
  const int64_t begin = int64_t{tile} * kTileSize;
  const auto size = static_cast<uint32_t>(pass.n - begin < kTileSize ? pass.n - begin : kTileSize);
  // A warp has kRounds * kWarp neighbouring contributions, kWarp of them in each round.
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
  // One scan of two sums: where the digit begins in the tile (low half), and in the whole output (high half).
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
