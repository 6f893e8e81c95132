// The sum of the values that no entry of the map names. Internal to the family.
#pragma once

#include <algorithm>
#include <type_traits>

#include "raggrad/core/context.h"
#include "raggrad/core/scratch.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/convert.h"

namespace raggrad::sparse_fill_empty_rows {

inline constexpr int64_t kFastBlock = 4096;  // values that kFast sums left to right; part of its definition

// Converts to the type that sums run in: float for the 16-bit types, T itself for other floats, and uint64_t for
// integers, whose low bits are the sums modulo smaller powers of two.
template <class T>
auto Widen(T value) noexcept {
  if constexpr (kIsShortFloat<T>) {
    return cpu::BaselineConvert::Widen(value);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(value);
  } else {
    return value;
  }
}
template <class T>
T Narrow(decltype(Widen(T{})) value) noexcept {
  if constexpr (std::is_same_v<T, Half>) {
    return cpu::BaselineConvert::NarrowToHalf(value);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return cpu::BaselineConvert::NarrowToBFloat16(value);
  } else {
    return static_cast<T>(value);
  }
}

// TensorFlow's running sum, rounded to T at every step. It cannot be split over threads, but one thread can hand it to
// the next.
template <class T>
class RunningSum {
 public:
  RunningSum() noexcept = default;
  explicit RunningSum(const void* values) noexcept : values_(static_cast<const T*>(values)) {}

  // Says that values [0, end) are there. AddPair() may then be called pairs() times.
  void Allow(int64_t end) noexcept { allowed_ = end; }
  int64_t pairs() const noexcept { return (allowed_ - position_) / 2; }
  [[gnu::always_inline]] void AddPair() noexcept {
    Add(values_[position_]);
    Add(values_[position_ + 1]);
    position_ += 2;
  }
  void AddUpTo(int64_t end) noexcept {
    RunningSum sum = *this;
    for (; sum.position_ < end; ++sum.position_) sum.Add(values_[sum.position_]);
    *this = sum;
  }
  T value() const noexcept { return Narrow<T>(sum_); }

 private:
  [[gnu::always_inline]] void Add(const T& value) noexcept { sum_ = Widen(Narrow<T>(sum_ + Widen(value))); }

  const T* values_ = nullptr;
  int64_t position_ = 0;
  int64_t allowed_ = 0;
  decltype(Widen(T{})) sum_{};
};

// Sums blocks left to right, then block sums two by two until one is left, and rounds once: always the same tree.
template <class T>
Status SumAsTree(const T* values, int64_t count, const Context& ctx, T* result) noexcept {
  using Sum = decltype(Widen(T{}));
  int64_t blocks = (count + kFastBlock - 1) / kFastBlock;
  auto sums = Scratch<Sum>::Make(ctx, std::max<int64_t>(blocks, 1));
  if (!sums.ok()) return sums.status();
  Sum* const block_sums = sums->data();
  block_sums[0] = Sum{};  // the answer when there are no blocks
  Executor& executor = ExecutorOf(ctx);
  cpu::ForEachChunk(executor, cpu::SplitEvenly(executor, blocks, 4), [=](int64_t, int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      Sum sum{};
      const int64_t block_end = std::min((block + 1) * kFastBlock, count);
      for (int64_t k = block * kFastBlock; k < block_end; ++k) sum += Widen(values[k]);
      block_sums[block] = sum;
    }
  });
  for (; blocks > 1; blocks = (blocks + 1) / 2) {
    for (int64_t k = 0; k < blocks / 2; ++k) block_sums[k] = block_sums[2 * k] + block_sums[2 * k + 1];
    if (blocks % 2 == 1) block_sums[blocks / 2] = block_sums[blocks - 1];
  }
  *result = Narrow<T>(block_sums[0]);
  return {};
}

}  // namespace raggrad::sparse_fill_empty_rows
