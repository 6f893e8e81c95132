// grad_values, taken apart: those that the map names, in the order of the map, and the others, ascending. Internal to
// the family. Elements are moved by their size, so that bits stay what they are and types of one size share the code.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>

#include "raggrad/core/error_text.h"
#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/first_error.h"
#include "raggrad/cpu/relay.h"
#include "raggrad/ops/sparse_fill_empty_rows/kernels.h"

namespace raggrad::sparse_fill_empty_rows {

template <size_t kBytes>
struct Cell {
  std::byte bytes[kBytes];
};

template <class E>
struct Others {
  Scratch<E> values;
  int64_t count = 0;
};

// What is done with the others as soon as they are known, in their order: take(others, begin, end, result) for
// [begin, end), each piece behind the one before. A piece that begins at 0 starts anew.
struct Taker {
  void (*take)(const void* others, int64_t begin, int64_t end, void* result) noexcept;
  void* result;
};

inline constexpr int64_t kEntryGrain = 16384;    // entries that pay for a thread: some 10 us of work
inline constexpr int64_t kChunksPerWorker = 16;  // so that little is left to sum when the last is separated
inline constexpr int64_t kAhead = 32;            // entries between a prefetch and its use

// How many places lie between; negative, or any large number, if they do not ascend.
inline int64_t GapBetween(int64_t previous, int64_t place) noexcept {
  return static_cast<int64_t>(static_cast<uint64_t>(place) - static_cast<uint64_t>(previous) - 1);
}

// gap in [0, most]
inline bool InRange(int64_t gap, int64_t most) noexcept {
  return static_cast<uint64_t>(gap) <= static_cast<uint64_t>(most);
}

// How many places before those of entries [i, n) are not named, if the map ascends.
inline int64_t OthersBefore(const Problem& p, int64_t i) noexcept {
  if (i == p.n()) return p.n_full() - p.n();
  return i == 0 ? 0 : p.reverse_index_map[static_cast<size_t>(i - 1)] + 1 - i;
}

// One worker's part of an ascending map: entries [begin, end). Places between two entries go to `others`, which has
// room for as many as an ascending map leaves over. False if the map does not ascend after all; then what was written
// is within bounds, but means nothing.
template <class E>
bool SeparateAscending(const Problem& p, int64_t begin, int64_t end, E* d_values, E* others) noexcept {
  const int64_t* const map = p.reverse_index_map.data();
  const E* const grad = p.grad_values.As<E>();
  const int64_t last = map[end - 1];
  int64_t previous = begin == 0 ? -1 : map[begin - 1];
  // As far as an ascending map can be here: there is a place for every entry before, within and behind.
  if (previous < begin - 1 || last < previous || last >= p.n_full() - (p.n() - end)) return false;
  if (last - previous < end - begin) return false;
  E* other = others + (previous + 1 - begin);
  E* const other_end = others + (last + 1 - end);
  for (int64_t i = begin; i < end; ++i) {
    // Most gaps are short and come at random, so kShort values are copied without asking whether the gap has them: a
    // branch would be mispredicted at every fifth entry. While so many are left for each entry, nothing else is asked.
    constexpr int64_t kShort = std::max<int64_t>(8 / sizeof(E), 2);
    if (other_end - other >= kShort) {
      const int64_t sure_end = std::min(end, i + (other_end - other) / kShort);
      for (; i < sure_end; ++i) {
        const int64_t place = map[i];
        const int64_t gap = GapBetween(previous, place);
        if (!InRange(gap, kShort)) [[unlikely]]
          break;
        std::memcpy(other, grad + previous + 1, kShort * sizeof(E));
        d_values[i] = grad[place];
        other += gap;
        previous = place;
      }
      if (i == end) break;
    }
    const int64_t place = map[i];
    const int64_t gap = GapBetween(previous, place);
    if (!InRange(gap, other_end - other)) return false;
    other = std::copy_n(grad + previous + 1, gap, other);
    d_values[i] = grad[place];
    previous = place;
  }
  if (end == p.n()) std::copy(grad + last + 1, grad + p.n_full(), other);
  return true;
}

// Whether the map looks ascending; cheap, so that one that does not costs nothing.
inline bool StartsAscending(const Problem& p) noexcept {
  const auto head = p.reverse_index_map.first(std::min<size_t>(p.reverse_index_map.size(), 64));
  return std::adjacent_find(head.begin(), head.end(), std::greater_equal<>()) == head.end();
}

// Any map. A worker marks the places that its entries name in a set of its own, one bit each: with bytes, or with one
// set for all, the marks would be as many cache misses as the gather itself.
class NamedPlaces {
 public:
  static constexpr int64_t kMostSets = 16;

  static Result<NamedPlaces> Make(const Context& ctx, int64_t places, int64_t sets) noexcept {
    NamedPlaces named;
    named.words_ = (places + 63) / 64;
    named.sets_ = sets;
    auto bits = Scratch<uint64_t>::Make(ctx, named.words_ * sets);
    if (!bits.ok()) return bits.status();
    named.bits_ = *std::move(bits);
    return named;
  }

  uint64_t* set(int64_t number) noexcept { return bits_.data() + number * words_; }
  int64_t words() const noexcept { return words_; }
  // A bit for each of 64 places that no entry names.
  uint64_t UnnamedIn(int64_t word) const noexcept {
    uint64_t named = 0;
    for (int64_t s = 0; s < sets_; ++s) named |= bits_[s * words_ + word];
    return ~named;
  }

 private:
  int64_t words_ = 0;
  int64_t sets_ = 0;
  Scratch<uint64_t> bits_;
};

// The place may be anything; it has not been checked yet.
template <class E>
void Prefetch(const E* values, int64_t place) noexcept {
  const uintptr_t address = reinterpret_cast<uintptr_t>(values) + static_cast<uintptr_t>(place) * sizeof(E);
  __builtin_prefetch(reinterpret_cast<const void*>(address));
}

// d_values[i] = grad_values[map[i]], and the place is marked.
template <class E>
Status GatherAndMark(const Problem& p, Parallel& parallel, const ::raggrad::cpu::Chunks& chunks, E* d_values,
                     NamedPlaces& named) noexcept {
  const int64_t* const map = p.reverse_index_map.data();
  const E* const grad = p.grad_values.As<E>();
  const auto places = static_cast<uint64_t>(p.n_full());
  ::raggrad::cpu::FirstError error;
  ::raggrad::cpu::ForEachChunk(parallel, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    uint64_t* const set = named.set(chunk);
    std::fill_n(set, named.words(), uint64_t{0});
    for (int64_t i = begin; i < end; ++i) {
      const auto place = static_cast<uint64_t>(map[i]);
      if (place >= places) {
        error.Report(i);
        return;
      }
      if (i + kAhead < end) Prefetch(grad, map[i + kAhead]);
      d_values[i] = grad[place];
      set[place / 64] |= uint64_t{1} << place % 64;
    }
  });
  if (!error.found()) return {};
  return NoSuchPlace(p, error.position(), map[error.position()]);
}

// Copies the values of unmarked places, in two passes: count per chunk, then write.
template <class E>
Result<Others<E>> CopyUnnamed(const Problem& p, const NamedPlaces& named, const Context& ctx,
                              const Taker& taker) noexcept {
  Parallel& parallel = ctx.executor();
  const ::raggrad::cpu::Chunks chunks =
      ::raggrad::cpu::SplitEvenly(parallel, named.words(), kEntryGrain / 64, kChunksPerWorker);
  auto relay = ::raggrad::cpu::Relay::Make(ctx, chunks.count);
  if (!relay.ok()) return relay.status();
  auto starts = Scratch<int64_t>::Make(ctx, chunks.count + 1);
  if (!starts.ok()) return starts.status();
  const auto unnamed = [&](int64_t word) {
    const int64_t rest = p.n_full() - word * 64;
    return named.UnnamedIn(word) & (rest < 64 ? (uint64_t{1} << rest) - 1 : ~uint64_t{0});
  };
  ::raggrad::cpu::ForEachChunk(parallel, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    int64_t count = 0;
    for (int64_t word = begin; word < end; ++word) count += std::popcount(unnamed(word));
    (*starts)[chunk] = count;
  });
  Others<E> others;
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    others.count += std::exchange((*starts)[chunk], others.count);
  }
  (*starts)[chunks.count] = others.count;
  auto values = Scratch<E>::Make(ctx, others.count);
  if (!values.ok()) return values.status();
  others.values = *std::move(values);
  const E* const grad = p.grad_values.As<E>();
  ::raggrad::cpu::ForEachChunk(parallel, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    E* out = others.values.data() + (*starts)[chunk];
    for (int64_t word = begin; word < end; ++word) {
      for (uint64_t bits = unnamed(word); bits != 0; bits &= bits - 1)
        *out++ = grad[word * 64 + std::countr_zero(bits)];
    }
    relay->Ready(chunk,
                 [&](int64_t c) { taker.take(others.values.data(), (*starts)[c], (*starts)[c + 1], taker.result); });
  });
  return others;
}

// In one pass, if the map ascends; no value if it does not.
template <class E>
Result<std::optional<Others<E>>> SeparateAscending(const Problem& p, const Context& ctx, E* d_values,
                                                   const Taker& taker) noexcept {
  Parallel& parallel = ctx.executor();
  const ::raggrad::cpu::Chunks chunks = ::raggrad::cpu::SplitEvenly(parallel, p.n(), kEntryGrain, kChunksPerWorker);
  auto relay = ::raggrad::cpu::Relay::Make(ctx, chunks.count);
  if (!relay.ok()) return relay.status();
  Others<E> others = {{}, p.n_full() - p.n()};
  auto values = Scratch<E>::Make(ctx, others.count);
  if (!values.ok()) return values.status();
  others.values = *std::move(values);
  std::atomic<bool> ascending = true;
  ::raggrad::cpu::ForEachChunk(parallel, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    if (!SeparateAscending(p, begin, end, d_values, others.values.data())) {
      ascending.store(false, std::memory_order_relaxed);
      return;
    }
    relay->Ready(chunk, [&](int64_t c) {
      taker.take(others.values.data(), OthersBefore(p, chunks.begin(c)), OthersBefore(p, chunks.end(c)), taker.result);
    });
  });
  if (!ascending) return std::optional<Others<E>>();
  return std::optional(std::move(others));
}

// Writes d_values; gives back the values that no entry names, which `taker` has had already.
template <class E>
Result<Others<E>> Separate(const Problem& p, const Context& ctx, E* d_values, const Taker& taker) noexcept {
  if (p.n() > 0 && p.n() <= p.n_full() && StartsAscending(p)) {
    auto others = SeparateAscending(p, ctx, d_values, taker);
    if (!others.ok()) return others.status();
    if (*others) return **std::move(others);
  }
  Parallel& parallel = ctx.executor();
  ::raggrad::cpu::Chunks chunks = ::raggrad::cpu::SplitEvenly(parallel, p.n(), kEntryGrain);
  chunks.count = std::min(chunks.count, NamedPlaces::kMostSets);
  Result<NamedPlaces> named = NamedPlaces::Make(ctx, p.n_full(), chunks.count);
  if (!named.ok()) return named.status();
  if (Status s = GatherAndMark(p, parallel, chunks, d_values, *named); !s.ok()) return s;
  return CopyUnnamed<E>(p, *named, ctx, taker);
}

}  // namespace raggrad::sparse_fill_empty_rows
