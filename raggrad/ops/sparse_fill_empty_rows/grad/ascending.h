// Takes grad_values apart along an ascending map, in one pass over both by all workers. Internal to the CPU backend.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>

#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/relay.h"
#include "raggrad/ops/sparse_fill_empty_rows/grad/default_sum.h"
#include "raggrad/ops/sparse_fill_empty_rows/grad/four_entries.h"
#include "raggrad/ops/sparse_fill_empty_rows/kernels.h"

namespace raggrad::sparse_fill_empty_rows {

inline constexpr int64_t kEntryGrain = 16384;    // entries that pay for a thread: some 10 us of work
inline constexpr int64_t kChunksPerWorker = 32;  // so that little is left to sum when the last is separated
inline constexpr int64_t kLongestRun = 512;      // the most entries in consecutive places that are copied together

// Whether the first 64 entries ascend. It is cheap, so a map that does not ascend loses no time.
inline bool StartsAscending(const GradProblem& p) noexcept {
  const auto head = p.reverse_index_map.first(std::min<size_t>(p.reverse_index_map.size(), 64));
  return std::adjacent_find(head.begin(), head.end(), std::greater_equal<>()) == head.end();
}

// How many places the gaps before entries [0, i) leave over, if the map ascends; for i == n also those behind the last.
inline int64_t OthersBefore(const GradProblem& p, int64_t i) noexcept {
  if (i == p.n()) return p.n_full() - p.n();
  return i == 0 ? 0 : p.reverse_index_map[static_cast<size_t>(i - 1)] + 1 - i;
}

// Whether entries [begin, end) leave so few places over that their sum can be made on the way. A wrong answer costs
// time only.
inline bool FewOthers(const GradProblem& p, int64_t begin, int64_t end) noexcept {
  const auto place = [&](int64_t i) { return static_cast<uint64_t>(p.reverse_index_map[static_cast<size_t>(i)]); };
  return place(end - 1) - place(begin) < 2 * static_cast<uint64_t>(end - begin);
}

// Where a worker stands.
template <class E>
struct Separation {
  const E* grad;
  int64_t next;          // the next place of grad
  const int64_t* entry;  // the next entry of the map
  E* d_value;            // where the next named value goes
  E* other;              // where the next other value goes

  // How many places are left over before `place`; a huge number if `place` is already behind.
  uint64_t GapBefore(int64_t place) const noexcept {
    return static_cast<uint64_t>(place) - static_cast<uint64_t>(next);
  }
  // Moves on: `entries` entries and all places before `place` are done.
  void Advance(int64_t entries, int64_t place) noexcept {
    entry += entries;
    d_value += entries;
    other += place - next - entries;
    next = place;
  }
};

struct NoSum {
  static void AddPair() noexcept {}
};

// Most gaps are short and come at random, so kShort values are always copied, however many the gap has: a branch would
// be mispredicted at every fifth entry.
template <class E>
inline constexpr int64_t kShort = sizeof(E) == kFourEntriesBytes ? 4 : std::max<int64_t>(8 / sizeof(E), 2);

// Separates the next 4 * fours entries, up to the first gap longer than kShort. There must be room for kShort others
// per entry. The sum takes two values with every four entries: each addition waits for the one before, and the
// processor separates meanwhile. Both work on copies that registers can hold.
template <class E, class Sum>
[[gnu::always_inline]] inline void SeparateFours(Separation<E>& separation, int64_t fours, Sum& running) noexcept {
  Separation<E> at = separation;
  Sum sum = running;
  for (; fours > 0; --fours) {
    int64_t behind = 0;
    if constexpr (sizeof(E) == kFourEntriesBytes)
      behind = FourEntries(at.entry, at.next, at.grad, at.d_value, at.other);
    if (behind != 0) {
      at.Advance(4, behind);
    } else {
      const int64_t* const stop = at.entry + 4;
      while (at.entry < stop) {
        const int64_t place = *at.entry;
        if (at.GapBefore(place) > kShort<E>) [[unlikely]]
          break;
        std::memcpy(at.other, at.grad + at.next, kShort<E> * sizeof(E));
        *at.d_value = at.grad[place];
        at.Advance(1, place + 1);
      }
      if (at.entry < stop) break;
    }
    sum.AddPair();
  }
  separation = at;
  running = sum;
}

// Separates one worker's entries [begin, end). Values between two entries go to `others`, which has room for as many as
// an ascending map leaves over. Returns false if the map does not ascend after all; then the outputs are written within
// bounds, but mean nothing. `sum`, unless it is null, takes the values it is allowed to take on the way.
template <class E, class Sum>
bool SeparateAscending(const GradProblem& p, int64_t begin, int64_t end, E* d_values, E* others, Sum* sum) noexcept {
  const int64_t* const map = p.reverse_index_map.data();
  const E* const grad = p.grad_values.As<E>();
  const int64_t last = map[end - 1];
  const int64_t previous = begin == 0 ? -1 : map[begin - 1];
  // An ascending map has a place for every entry before, within and behind this part.
  if (previous < begin - 1 || last < previous || last >= p.n_full() - (p.n() - end)) return false;
  if (last - previous < end - begin) return false;
  Separation<E> at = {grad, previous + 1, map + begin, d_values + begin, others + (previous + 1 - begin)};
  const int64_t* const entries_end = map + end;
  const E* const others_end = others + (last + 1 - end);
  while (at.entry < entries_end) {
    const int64_t fours = std::min(entries_end - at.entry, (others_end - at.other) / kShort<E>) / 4;
    if (const int64_t pairs = sum != nullptr ? sum->pairs() : 0; pairs > 0) {
      SeparateFours(at, std::min(fours, pairs), *sum);
    } else {
      NoSum none;
      SeparateFours(at, fours, none);
    }
    if (at.entry == entries_end) break;
    const int64_t place = *at.entry;
    const uint64_t gap = at.GapBefore(place);
    const int64_t left = others_end - at.other;
    if (gap > static_cast<uint64_t>(left)) return false;
    std::copy_n(grad + at.next, gap, at.other);
    *at.d_value = grad[place];
    int64_t run = 1;
    if (left < 4 * kShort<E>) {  // few gaps are left, or none
      const int64_t most = std::min<int64_t>(entries_end - at.entry, kLongestRun);
      while (run < most && at.entry[run] == place + run) ++run;
      std::copy_n(grad + place + 1, run - 1, at.d_value + 1);
    }
    at.Advance(run, place + run);
  }
  if (end == p.n()) std::copy(grad + at.next, grad + p.n_full(), at.other);
  return true;
}

// Separates everything in one pass. Returns false if the map does not ascend. `others` has room for n_full - n values.
// A null `sum` sums nothing.
template <class E, class Sum>
Result<bool> SeparateAscending(const GradProblem& p, const Context& ctx, E* d_values, E* others, Sum* sum) noexcept {
  Executor& executor = ExecutorOf(ctx);
  const cpu::Chunks chunks = cpu::SplitEvenly(executor, p.n(), kEntryGrain, kChunksPerWorker);
  auto relay = cpu::Relay::Make(ctx, chunks.count);
  if (!relay.ok()) return relay.status();
  std::atomic<bool> ascending = true;
  const Status walked = cpu::ForEachChunkUntilStopped(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    using cpu::Relay;
    const int64_t on_the_way = FewOthers(p, begin, end) ? (end - begin) / 2 : 0;
    std::optional<Relay::Turn> turn;
    const auto ready = [&] { return OthersBefore(p, chunks.begin(turn->CountReady())); };
    if (sum != nullptr && on_the_way > 0) turn.emplace(*relay);
    if (turn && turn->ok()) sum->Allow(ready());
    if (!SeparateAscending(p, begin, end, d_values, others, turn && turn->ok() ? sum : nullptr)) {
      ascending.store(false, std::memory_order_relaxed);
      return;
    }
    relay->Ready(chunk);
    if (sum == nullptr) return;
    if (!turn) turn.emplace(*relay);
    if (turn->ok()) sum->AddUpTo(ready() - on_the_way);  // the next chunk adds so many on its way
  });
  if (!walked.ok()) return walked;
  if (ascending && sum != nullptr) sum->AddUpTo(p.n_full() - p.n());
  return ascending.load();
}

}  // namespace raggrad::sparse_fill_empty_rows
