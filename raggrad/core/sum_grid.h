// The arithmetic of Accumulation::kReproducible: sums that have the same bits in every order. Shared by all devices.
//
// A contribution c of a row is first rounded to a multiple of a power of two, q = (c + M) - M in double, with
// M = 1.5 * 2^(E + 1 + L): E is the exponent of the largest finite contribution in any column of the row, L the number
// of bits of n, the number of contributions. A sum of n such multiples needs at most 52 bits, so it is exact, and the
// same for every order and every cut into partial sums. It is rounded once, at the end. NaN and infinities pass through
// both additions.
//
// double has a second grid for what the first one leaves, c - q, with M' = 1.5 * 2^(E + 2 L - 51). Rows whose M or M'
// would leave the range of double are scaled by a power of two first, which changes no bit of the result.
#pragma once

#include <cstdint>

namespace raggrad {

// A: the type of contributions. kSums: doubles that a partial sum of one column consists of.
template <class A>
struct SumGrid;

template <>
struct SumGrid<float> {
  static constexpr int kSums = 1;
  double magic;
};

template <>
struct SumGrid<double> {
  static constexpr int kSums = 2;
  double magic;   // of the first sum
  double magic2;  // of the second sum
  double scale;   // of contributions: 1, or a power of two
  double growth;  // of a sum before it is divided: 1, or 1 / scale if that is above 1
  double shrink;  // of the result: 1, or 1 / scale if that is below 1
};

// 2^exponent, for exponents of normal numbers.
[[gnu::always_inline]] constexpr inline double PowerOfTwo(int64_t exponent) noexcept {
  return __builtin_bit_cast(double, static_cast<uint64_t>(exponent + 1023) << 52);
}

// 1.5 * 2^exponent, for such exponents.
[[gnu::always_inline]] constexpr inline double MagicOf(int64_t exponent) noexcept {
  return __builtin_bit_cast(double, static_cast<uint64_t>(exponent + 1023) << 52 | uint64_t{1} << 51);
}

// The number of bits of n > 0.
[[gnu::always_inline]] constexpr inline int64_t BitsOf(int64_t n) noexcept {
  return 64 - __builtin_clzll(static_cast<uint64_t>(n));
}
[[gnu::always_inline]] constexpr inline int64_t BitsOf(uint32_t n) noexcept { return 32 - __builtin_clz(n); }

// The grid of a row of n contributions, the largest finite one of magnitude `largest`. If that is zero or subnormal,
// which counts as zero, any grid will do.
template <class Count>
[[gnu::always_inline]] constexpr inline SumGrid<float> GridOf(float largest, Count n) noexcept {
  const int64_t biased = __builtin_bit_cast(uint32_t, largest) >> 23;
  return {MagicOf(biased - 127 + 1 + BitsOf(n))};
}

template <class Count>
[[gnu::always_inline]] constexpr inline SumGrid<double> GridOf(double largest, Count n) noexcept {
  // Between these exponents neither M nor a remainder leaves the range of normal numbers, for any n.
  constexpr int64_t kSmall = -900, kLarge = 900, kScale = 600;
  const int64_t biased = static_cast<int64_t>(__builtin_bit_cast(uint64_t, largest) >> 52);
  const int64_t exponent = biased - 1023;
  const int64_t scale = biased == 0 ? 0 : exponent < kSmall ? kScale : exponent > kLarge ? -kScale : 0;
  const int64_t bits = BitsOf(n);
  const int64_t scaled = biased == 0 ? 0 : exponent + scale;
  return {.magic = MagicOf(scaled + 1 + bits),
          .magic2 = MagicOf(scaled + 2 * bits - 51),
          .scale = PowerOfTwo(scale),
          .growth = scale < 0 ? PowerOfTwo(-scale) : 1.0,
          .shrink = scale > 0 ? PowerOfTwo(-scale) : 1.0};
}

// 2^exponent of a magic number 1.5 * 2^exponent.
[[gnu::always_inline]] constexpr inline double PowerOfMagic(double magic) noexcept {
  return __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, magic) - (uint64_t{1} << 51));
}

// The magnitude from which contributions lie on the grid, so that rounding to it changes nothing. A float is a multiple
// of its own last place, 2^(e - 23), so it lies on the grid of 2^(E + 1 + L - 52) if e >= E + L - 28. Most do: the
// exponents of a row seldom differ by more than 20. Two grids of double hold all that have e >= E + 2 L - 51.
[[gnu::always_inline]] constexpr inline double OnGridFrom(const SumGrid<float>& grid) noexcept {
  return PowerOfMagic(grid.magic) * 0x1p-29;
}
[[gnu::always_inline]] constexpr inline double OnGridFrom(const SumGrid<double>& grid) noexcept {
  return grid.scale == 1.0 ? PowerOfMagic(grid.magic2) : __builtin_inf();
}

// The result of a finished sum, rounded once, in an environment that flushes subnormals. A zero is +0. The sum of
// floats is a multiple of 2^-149, so one that is subnormal in float needs no rounding, and all machines flush the same
// values.
[[gnu::always_inline]] constexpr inline float RoundSum(const SumGrid<float>&, double sum) noexcept {
  return static_cast<float>(sum) + 0.0F;
}

inline constexpr double kSmallestFloat = 0x1p-126;                            // the smallest normal one
inline constexpr double kRoundedToSmallestFloat = kSmallestFloat - 0x1p-150;  // and what is rounded to it, from here on

// x, or +0 if it is still subnormal when rounded: above `limit` it rounds to `smallest`, the smallest normal number.
// Quotients need this: machines differ in which of them they flush.
[[gnu::always_inline]] constexpr inline double WithoutSubnormals(double x, double smallest, double limit) noexcept {
  const double magnitude = x < 0 ? -x : x;
  const double normal = magnitude < smallest ? (x < 0 ? -smallest : smallest) : x;
  return magnitude < limit ? 0.0 : normal;
}

// The same for a sum that is divided before it is rounded.
[[gnu::always_inline]] constexpr inline float RoundSum(const SumGrid<float>&, double sum, double divisor) noexcept {
  return static_cast<float>(WithoutSubnormals(sum / divisor, kSmallestFloat, kRoundedToSmallestFloat));
}

// The same for the two sums of double; divisor 1 costs nothing if the compiler sees it.
[[gnu::always_inline]] constexpr inline double RoundSums(const SumGrid<double>& grid, double sum, double sum2,
                                                         double divisor) noexcept {
  const double finite_sum2 = sum - sum == 0 ? sum2 : 0.0;  // remainders of infinities are NaN
  const double total = (sum + finite_sum2) * grid.growth / divisor;
  const double smallest = 0x1p-1022 / grid.shrink;
  return WithoutSubnormals(total, smallest, smallest - smallest * 0x1p-53) * grid.shrink;
}

}  // namespace raggrad
