// Values from subnormal to infinite, for tests of sums.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "raggrad/core/sum_type.h"
#include "raggrad/cpu/convert.h"

namespace raggrad::testing {

inline constexpr int kWideRanges = 6;

// One value. Ranges: 0 and 1 normal numbers around 1, 2 every exponent, 3 subnormal and small, 4 near overflow, 5 few
// bits, so that many sums are ties or zero. All but 0 have some zeros of both signs, infinities and NaNs.
template <class V>
V WideValue(int range, std::mt19937& random) {
  using A = SumType<V>;
  constexpr int kLeast = std::is_same_v<V, Half> ? -24 : std::is_same_v<A, double> ? -1074 : -149;
  constexpr int kMost = std::is_same_v<V, Half> ? 15 : std::is_same_v<A, double> ? 1023 : 127;
  const auto between = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
  };
  const auto value_of = [](double x) {
    if constexpr (std::is_same_v<V, Half>) {
      return cpu::BaselineConvert::NarrowToHalf(static_cast<float>(x));
    } else if constexpr (std::is_same_v<V, BFloat16>) {
      return cpu::BaselineConvert::NarrowToBFloat16(static_cast<float>(x));
    } else {
      return static_cast<V>(x);
    }
  };
  if (range != 0 && random() % 16 == 0) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr double kSpecial[] = {0.0, -0.0,      0.0,        -0.0,
                                   0.0, kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()};
    return value_of(kSpecial[random() % (random() % 4 == 0 ? 8 : 5)]);
  }
  const double sign = random() % 2 == 0 ? 1 : -1;
  const double fraction = 1 + static_cast<double>(random()) * 0x1p-32 + static_cast<double>(random()) * 0x1p-64;
  const int exponent = range <= 1   ? between(-8, 3)
                       : range == 2 ? between(kLeast, kMost)
                       : range == 3 ? between(kLeast, kLeast + 60)
                       : range == 4 ? between(kMost - 3, kMost)
                                    : between(-2, 2);
  return value_of(sign * std::ldexp(range == 5 ? 1 : fraction, exponent));
}

template <class V>
std::vector<V> WideValues(size_t count, int range, std::mt19937& random) {
  std::vector<V> values(count);
  for (V& value : values) value = WideValue<V>(range, random);
  return values;
}

}  // namespace raggrad::testing
