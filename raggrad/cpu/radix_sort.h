// A parallel, stable radix sort of records by an unsigned 32-bit key of which only the low bits are used.
//
// Sorts by the least significant digit first, up to 11 bits at a time: 2048 counters stay in the L1 cache, and the TLB
// copes with about 2048 write streams. Each chunk of the input has its own counters, so that chunks scatter
// independently and equal keys keep their order for any number of workers.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "raggrad/core/context.h"
#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"

namespace raggrad::cpu {

namespace radix_internal {

inline constexpr int64_t kGrain = 1 << 14;     // records per chunk at least
inline constexpr int64_t kInsertionSize = 48;  // below this, insertion sort is faster than counting

struct Digits {
  int count;  // passes
  int bits;   // per pass
};

// Uses no more counters than there are records: a short input should not pay for clearing 2048 of them.
inline Digits ChooseDigits(int64_t n, int key_bits) noexcept {
  const int widest = std::clamp(static_cast<int>(std::bit_width(static_cast<uint64_t>(n))) - 1, 4, 11);
  const int count = (key_bits + widest - 1) / widest;
  return {count, (key_bits + count - 1) / count};
}

template <class Record, class Key>
void InsertionSort(Record* records, int64_t n, const Key& key) noexcept {
  for (int64_t i = 1; i < n; ++i) {
    const Record record = records[i];
    int64_t place = i;
    for (; place > 0 && key(records[place - 1]) > key(record); --place) records[place] = records[place - 1];
    records[place] = record;
  }
}

// One pass: from `in` to `out` by the digit at `shift`. Counter is wide enough for n.
template <class Counter, class Record, class Key>
Status SortByDigit(Executor& executor, const Chunks& chunks, const Record* in, Record* out, Counter* counters,
                   int shift, int bits, const Key& key) noexcept {
  const uint32_t mask = (uint32_t{1} << bits) - 1;
  const int64_t digits = int64_t{1} << bits;
  Status counted = ForEachChunkUntilStopped(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    Counter* count = counters + chunk * digits;
    std::fill_n(count, digits, Counter{0});
    for (int64_t i = begin; i < end; ++i) ++count[(key(in[i]) >> shift) & mask];
  });
  if (!counted.ok()) return counted;
  Counter next = 0;  // counts become places: by digit, then by chunk
  for (int64_t digit = 0; digit < digits; ++digit) {
    for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
      next = static_cast<Counter>(next + std::exchange(counters[chunk * digits + digit], next));
    }
  }
  return ForEachChunkUntilStopped(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    Counter* place = counters + chunk * digits;
    for (int64_t i = begin; i < end; ++i) out[place[(key(in[i]) >> shift) & mask]++] = in[i];
  });
}

template <class Counter, class Record, class Key>
Result<Record*> Sort(const Context& ctx, Record* records, Record* spare, int64_t n, int key_bits,
                     const Key& key) noexcept {
  Executor& executor = ExecutorOf(ctx);
  const Chunks chunks = SplitEvenly(executor, n, kGrain);
  const Digits digits = ChooseDigits(n, key_bits);
  Result<Scratch<Counter>> counters = Scratch<Counter>::Make(ctx, chunks.count << digits.bits);
  if (!counters.ok()) return counters.status();
  for (int pass = 0; pass < digits.count; ++pass) {
    const Status sorted =
        SortByDigit(executor, chunks, records, spare, counters->data(), pass * digits.bits, digits.bits, key);
    if (!sorted.ok()) return sorted;
    std::swap(records, spare);
  }
  return records;
}

}  // namespace radix_internal

// Sorts n records by key(record), of which only the low `key_bits` (0 to 32) may be set. `spare` has room for n
// records. Returns the one of the two buffers that holds the result, or CANCELLED. Scratch: at most 8 KiB per 16384
// records, or 16 KiB if n does not fit 32 bits.
template <class Record, class Key>
Result<Record*> RadixSort(const Context& ctx, Record* records, Record* spare, int64_t n, int key_bits,
                          const Key& key) noexcept {
  if (key_bits == 0 || n < 2) return records;
  if (n <= radix_internal::kInsertionSize) {
    radix_internal::InsertionSort(records, n, key);
    return records;
  }
  if (n <= UINT32_MAX) return radix_internal::Sort<uint32_t>(ctx, records, spare, n, key_bits, key);
  return radix_internal::Sort<uint64_t>(ctx, records, spare, n, key_bits, key);
}

}  // namespace raggrad::cpu
