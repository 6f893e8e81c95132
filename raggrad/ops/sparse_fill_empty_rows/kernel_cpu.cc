// Host side and loops of the CPU backend.
#include <algorithm>
#include <atomic>
#include <complex>
#include <cstring>
#include <type_traits>
#include <utility>

#include "raggrad/core/error_text.h"
#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/convert.h"
#include "raggrad/cpu/first_error.h"
#include "raggrad/cpu/flush_subnormals.h"
#include "raggrad/ops/sparse_fill_empty_rows/kernels.h"

namespace raggrad::sparse_fill_empty_rows::cpu {
namespace {

using ::raggrad::cpu::BaselineConvert;
using ::raggrad::cpu::FirstError;
using ::raggrad::cpu::ForEachChunk;
using ::raggrad::cpu::ScopedFlushSubnormals;
using ::raggrad::cpu::SplitEvenly;

constexpr int64_t kGrain = 16384;     // elements that pay for a thread: some 10 us of work
constexpr int64_t kFastBlock = 4096;  // places that Accumulation::kFast sums left to right; part of its definition
constexpr uint64_t kEightNamed = 0x0101010101010101;

// f(j) for every place j in [begin, end) whose flag is 0, ascending. Most places have an entry, so eight flags are
// looked at in one go.
template <class F>
void ForEachUnnamed(const uint8_t* named, int64_t begin, int64_t end, const F& f) noexcept {
  const auto try_one = [&](int64_t j) {
    if (named[j] == 0) f(j);
  };
  int64_t j = begin;
  for (; j + 8 <= end; j += 8) {
    uint64_t flags;
    std::memcpy(&flags, named + j, sizeof(flags));
    if (flags == kEightNamed) continue;
    for (int64_t k = j; k < j + 8; ++k) try_one(k);
  }
  for (; j < end; ++j) try_one(j);
}

// d_values[i] = grad_values[map[i]], and named[map[i]] = 1. Writes and reads everything once. Elements are copied by
// their size, so that bits stay what they are and types of one size share the code. Two entries may set the same flag
// at the same time, hence the atomic stores (plain byte stores in machine code).
template <size_t kBytes>
Status GatherAndFlag(const Problem& problem, Parallel& parallel, void* d_values, uint8_t* named) noexcept {
  const int64_t* const map = problem.reverse_index_map.data();
  const int64_t n_full = problem.n_full();
  const std::byte* const in = problem.grad_values.As<std::byte>();
  std::byte* const out = static_cast<std::byte*>(d_values);
  FirstError error;
  ForEachChunk(parallel, SplitEvenly(parallel, problem.n(), kGrain), [=, &error](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t place = map[i];
      if (static_cast<uint64_t>(place) >= static_cast<uint64_t>(n_full)) {
        error.Report(i);
        return;
      }
      std::memcpy(out + static_cast<size_t>(i) * kBytes, in + static_cast<size_t>(place) * kBytes, kBytes);
      std::atomic_ref(named[place]).store(1, std::memory_order_relaxed);
    }
  });
  if (!error.found()) return {};
  const int64_t bad = error.position();
  return InvalidArgument(problem.op, "Elements in reverse index must be in [0, ", n_full, ") but got ", map[bad],
                         " [reverse_index_map[", bad, "]: expected a place in grad_values, got ", map[bad], "]");
}

// Floating-point sums run in float for the 16-bit types and in T itself for the others.
template <class T>
auto Widen(T value) noexcept {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return BaselineConvert::Widen(value);
  } else {
    return value;
  }
}
template <class T>
T Narrow(decltype(Widen(T{})) value) noexcept {
  if constexpr (std::is_same_v<T, Half>) {
    return BaselineConvert::NarrowToHalf(value);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return BaselineConvert::NarrowToBFloat16(value);
  } else {
    return value;
  }
}

// One running sum, rounded to T at every step: TensorFlow's. It cannot be split, whatever the number of threads. The
// result goes to memory inside the guard's scope, for the guard orders memory accesses.
template <class T>
void SumInOrder(const T* grad, const uint8_t* named, int64_t n_full, T* result) noexcept {
  const ScopedFlushSubnormals flush;
  auto sum = Widen(T{});
  ForEachUnnamed(named, 0, n_full, [&](int64_t j) { sum = Widen(Narrow<T>(sum + Widen(grad[j]))); });
  *result = Narrow<T>(sum);
}

// Block sums left to right, then block sums two by two until one is left, rounded once. Blocks lie at fixed places, so
// it is always the same tree.
template <class T>
Status SumAsTree(const T* grad, const uint8_t* named, int64_t n_full, const Context& ctx, T* result) noexcept {
  using Sum = decltype(Widen(T{}));
  int64_t blocks = (n_full + kFastBlock - 1) / kFastBlock;
  auto sums = Scratch<Sum>::Make(ctx, std::max<int64_t>(blocks, 1));
  if (!sums.ok()) return sums.status();
  Sum* const block_sums = sums->data();
  block_sums[0] = Sum{};  // the answer when there are no blocks
  const auto chunks = SplitEvenly(ctx.executor(), blocks, kGrain / kFastBlock);
  ForEachChunk(ctx.executor(), chunks, [=](int64_t, int64_t begin, int64_t end) {
    const ScopedFlushSubnormals flush;
    for (int64_t block = begin; block < end; ++block) {
      Sum sum{};
      ForEachUnnamed(named, block * kFastBlock, std::min((block + 1) * kFastBlock, n_full),
                     [&](int64_t j) { sum += Widen(grad[j]); });
      block_sums[block] = sum;
    }
  });
  const ScopedFlushSubnormals flush;
  for (; blocks > 1; blocks = (blocks + 1) / 2) {
    for (int64_t k = 0; k < blocks / 2; ++k) block_sums[k] = block_sums[2 * k] + block_sums[2 * k + 1];
    if (blocks % 2 == 1) block_sums[blocks / 2] = block_sums[blocks - 1];
  }
  *result = Narrow<T>(block_sums[0]);
  return {};
}

// Sums modulo 2^64 are the same in any order, and their low bits are the sums modulo the powers of two below.
template <class T>
void SumWrapping(const T* grad, const uint8_t* named, int64_t n_full, Parallel& parallel, T* result) noexcept {
  std::atomic<uint64_t> total{0};
  const auto chunks = SplitEvenly(parallel, n_full, kGrain);
  ForEachChunk(parallel, chunks, [=, &total](int64_t, int64_t begin, int64_t end) {
    uint64_t sum = 0;
    ForEachUnnamed(named, begin, end, [&](int64_t j) { sum += static_cast<uint64_t>(grad[j]); });
    total.fetch_add(sum, std::memory_order_relaxed);
  });
  *result = static_cast<T>(total.load(std::memory_order_relaxed));
}

template <class T>
Status SumUnnamed(const T* grad, const uint8_t* named, int64_t n_full, const Context& ctx, T* result) noexcept {
  if constexpr (std::is_integral_v<T>) {
    SumWrapping(grad, named, n_full, ctx.executor(), result);
  } else if (ctx.accumulation == Accumulation::kFast) {
    return SumAsTree(grad, named, n_full, ctx, result);
  } else {
    SumInOrder(grad, named, n_full, result);
  }
  return {};
}

}  // namespace

Result<FillEmptyRowsGradOutput> Grad(const Problem& problem, const Context& ctx) noexcept {
  const DType dtype = problem.grad_values.dtype;
  const int64_t n_full = problem.n_full();

  auto named = Scratch<uint8_t>::Make(ctx, n_full);
  if (!named.ok()) return named.status();
  auto d_values = AllocateOutput(ctx, 0, dtype, Shape{problem.n()});
  if (!d_values.ok()) return d_values.status();
  auto d_default_value = AllocateOutput(ctx, 1, dtype, Shape{});
  if (!d_default_value.ok()) return d_default_value.status();

  Parallel& parallel = ctx.executor();
  uint8_t* const flags = named->data();
  ForEachChunk(parallel, SplitEvenly(parallel, n_full, 16 * kGrain),
               [=](int64_t, int64_t begin, int64_t end) { std::fill(flags + begin, flags + end, uint8_t{0}); });
  Status status = Visit(NumberTypes{}, dtype, [&]<class T>() -> Status {
    if (Status s = GatherAndFlag<sizeof(T)>(problem, parallel, d_values->data(), flags); !s.ok()) return s;
    return SumUnnamed(problem.grad_values.As<T>(), flags, n_full, ctx, d_default_value->template As<T>());
  });
  if (!status.ok()) return status;
  return FillEmptyRowsGradOutput{*std::move(d_values), *std::move(d_default_value)};
}

}  // namespace raggrad::sparse_fill_empty_rows::cpu
