// Takes grad_values apart: the values that the map names, in the order of the map, and the others, in their own order.
// Elements are moved by their size, so that bits stay what they are and types of one size share the code. Internal to
// the CPU backend.
#pragma once

#include <algorithm>
#include <bit>

#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/first_error.h"
#include "raggrad/cpu/prefetch.h"
#include "raggrad/cpu/relay.h"
#include "raggrad/ops/sparse_fill_empty_rows/grad/ascending.h"
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

inline constexpr int64_t kAhead = 32;  // entries between a prefetch and its use

// The places that a map in any order names. Each worker marks them in its own set of bits: with bytes, or with one set
// for all, the marks would cause as many cache misses as the gather itself.
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
  // The bits of those of 64 places that no entry names.
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

// Sets d_values[i] = grad_values[map[i]] and marks the place.
template <class E>
Status GatherAndMark(const GradProblem& p, Executor& executor, const cpu::Chunks& chunks, E* d_values,
                     NamedPlaces& named) noexcept {
  const int64_t* const map = p.reverse_index_map.data();
  const E* const grad = p.grad_values.As<E>();
  const auto places = static_cast<uint64_t>(p.n_full());
  cpu::FirstError error;
  cpu::ForEachChunk(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    uint64_t* const set = named.set(chunk);
    std::fill_n(set, named.words(), uint64_t{0});
    for (int64_t i = begin; i < end; ++i) {
      const auto place = static_cast<uint64_t>(map[i]);
      if (place >= places) {
        error.Report(i);
        return;
      }
      if (i + kAhead < end) cpu::Prefetch(grad, map[i + kAhead]);  // not checked yet
      d_values[i] = grad[place];
      set[place / 64] |= uint64_t{1} << place % 64;
    }
  });
  if (!error.found()) return {};
  return NoSuchPlace(p, error.position(), map[error.position()]);
}

// Copies the values of unmarked places, in two passes: counts them per chunk, then writes.
template <class E, class Sum>
Result<Others<E>> CopyUnnamed(const GradProblem& p, const NamedPlaces& named, const Context& ctx, Sum* sum) noexcept {
  Executor& executor = ExecutorOf(ctx);
  const cpu::Chunks chunks = cpu::SplitEvenly(executor, named.words(), kEntryGrain / 64, kChunksPerWorker);
  auto relay = cpu::Relay::Make(ctx, chunks.count);
  if (!relay.ok()) return relay.status();
  auto starts = Scratch<int64_t>::Make(ctx, chunks.count + 1);
  if (!starts.ok()) return starts.status();
  const auto unnamed = [&](int64_t word) {
    const int64_t rest = p.n_full() - word * 64;
    return named.UnnamedIn(word) & (rest < 64 ? (uint64_t{1} << rest) - 1 : ~uint64_t{0});
  };
  cpu::ForEachChunk(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
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
  if (sum != nullptr) *sum = Sum(others.values.data());
  const E* const grad = p.grad_values.As<E>();
  const Status copied = cpu::ForEachChunkUntilStopped(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    E* out = others.values.data() + (*starts)[chunk];
    for (int64_t word = begin; word < end; ++word) {
      for (uint64_t bits = unnamed(word); bits != 0; bits &= bits - 1)
        *out++ = grad[word * 64 + std::countr_zero(bits)];
    }
    relay->Ready(chunk);
    if (sum == nullptr) return;
    if (cpu::Relay::Turn turn(*relay); turn.ok()) sum->AddUpTo((*starts)[turn.CountReady()]);
  });
  if (!copied.ok()) return copied;
  if (sum != nullptr) sum->AddUpTo(others.count);
  return others;
}

// Writes d_values and returns the values that no entry names. Adds these up in `sum` unless it is null.
template <class E, class Sum>
Result<Others<E>> Separate(const GradProblem& p, const Context& ctx, E* d_values, Sum* sum) noexcept {
  if (p.n() > 0 && p.n() <= p.n_full() && StartsAscending(p)) {
    Others<E> others = {{}, p.n_full() - p.n()};
    auto values = Scratch<E>::Make(ctx, others.count);
    if (!values.ok()) return values.status();
    others.values = *std::move(values);
    if (sum != nullptr) *sum = Sum(others.values.data());
    const Result<bool> ascends = SeparateAscending(p, ctx, d_values, others.values.data(), sum);
    if (!ascends.ok()) return ascends.status();
    if (*ascends) return others;
  }
  Executor& executor = ExecutorOf(ctx);
  cpu::Chunks chunks = cpu::SplitEvenly(executor, p.n(), kEntryGrain);
  // Each chunk has its own set of bits.
  chunks.count = std::min<int64_t>({chunks.count, NamedPlaces::kMostSets, executor.num_workers()});
  Result<NamedPlaces> named = NamedPlaces::Make(ctx, p.n_full(), chunks.count);
  if (!named.ok()) return named.status();
  if (Status s = GatherAndMark(p, executor, chunks, d_values, *named); !s.ok()) return s;
  return CopyUnnamed<E>(p, *named, ctx, sum);
}

}  // namespace raggrad::sparse_fill_empty_rows
