// Random irregular data for tests and fuzzers: ragged lengths, skewed ids, hostile values. The same seed gives the same
// data on every machine.
//
//   Generator random(7);
//   const auto ids = random.ZipfIds<int32_t>(1000, 50);
//   const auto grad = random.HostileValues<Half>(64);
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

#include "raggrad/core/dtype.h"

namespace raggrad::testing {

class Generator {
 public:
  explicit Generator(uint64_t seed) noexcept : state_(seed) {}

  // 64 random bits (the splitmix64 sequence).
  uint64_t Bits() noexcept {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  double Unit() noexcept { return static_cast<double>(Bits() >> 11) * 0x1p-53; }  // [0, 1)
  int64_t Below(int64_t limit) noexcept { return static_cast<int64_t>(Bits() % static_cast<uint64_t>(limit)); }

  // Ids of [0, ids), all equally likely.
  template <class I>
  std::vector<I> UniformIds(int64_t count, int64_t ids) {
    return Fill<I>(count, [&] { return static_cast<I>(Below(ids)); });
  }
  // Ids of [0, ids), where id k has a weight of about 1 / (k + 1): a few are hot, most are rare, as in click data.
  template <class I>
  std::vector<I> ZipfIds(int64_t count, int64_t ids) {
    const double range = std::log1p(static_cast<double>(ids));
    return Fill<I>(count,
                   [&] { return static_cast<I>(std::min(ids - 1, static_cast<int64_t>(std::expm1(Unit() * range)))); });
  }

  // Lengths of rows: many empty, a few much longer than the mean.
  std::vector<int64_t> RowLengths(int64_t rows, double mean) {
    return Fill<int64_t>(rows,
                         [&] { return Below(4) == 0 ? 0 : static_cast<int64_t>(-std::log1p(-Unit()) * mean * 4 / 3); });
  }
  template <class I>
  static std::vector<I> RowSplits(const std::vector<int64_t>& lengths) {
    std::vector<I> splits{0};
    for (const int64_t length : lengths) splits.push_back(static_cast<I>(splits.back() + length));
    return splits;
  }
  // The row of each value: sorted segment ids.
  template <class I>
  static std::vector<I> RowIds(const std::vector<int64_t>& lengths) {
    std::vector<I> ids;
    for (size_t row = 0; row < lengths.size(); ++row)
      ids.insert(ids.end(), static_cast<size_t>(lengths[row]), static_cast<I>(row));
    return ids;
  }

  // Ordinary values: floats about as large as 1, any integer.
  template <class T>
  T Value() noexcept {
    if constexpr (IsComplex<T>) {
      const auto real = Value<typename T::value_type>();
      return {real, Value<typename T::value_type>()};
    } else if constexpr (kMantissaBits<T> > 0) {
      constexpr uint64_t kHalfway = kOne<T> - (uint64_t{1} << kMantissaBits<T>);  // 0.5
      const uint64_t sign = (Bits() & 1) << kSignShift<T>;
      // A random mantissa and an exponent of 2^-1 to 2^1.
      return FromBits<T>(sign | (kHalfway + static_cast<uint64_t>(Below(int64_t{3} << kMantissaBits<T>))));
    } else {
      return FromBits<T>(Bits());
    }
  }

  // Values that break things: zeros of both signs, subnormals, the ends of the range, infinities, quiet and signalling
  // NaNs, any bits at all; the ends of the integers' ranges.
  template <class T>
  T Hostile() noexcept {
    if constexpr (IsComplex<T>) {
      const auto real = Hostile<typename T::value_type>();
      return {real, Hostile<typename T::value_type>()};
    } else if constexpr (kMantissaBits<T> > 0) {
      constexpr uint64_t kSmallestNormal = uint64_t{1} << kMantissaBits<T>;
      constexpr uint64_t kInfinity = ~(kSmallestNormal - 1) & ~(~uint64_t{0} << kSignShift<T>);
      constexpr uint64_t kSpecials[] = {0,
                                        1,
                                        kSmallestNormal / 2,
                                        kSmallestNormal - 1,
                                        kSmallestNormal,
                                        kSmallestNormal + 1,
                                        kOne<T> - 1,
                                        kOne<T>,
                                        kOne<T> + 1,
                                        kInfinity - 1,
                                        kInfinity,
                                        kInfinity + 1,
                                        kInfinity + kSmallestNormal / 2};
      const uint64_t sign = (Bits() & 1) << kSignShift<T>;
      switch (Below(4)) {
        case 0:
          return FromBits<T>(Bits());
        case 1:
          return Value<T>();
        default:
          return FromBits<T>(sign | kSpecials[Below(std::size(kSpecials))]);
      }
    } else {
      constexpr uint64_t kTopBit = uint64_t{1} << (8 * sizeof(T) - 1);
      constexpr uint64_t kSpecials[] = {0, 1, kTopBit - 1, kTopBit, ~uint64_t{0}};
      return FromBits<T>(Below(2) == 0 ? Bits() : kSpecials[Below(std::size(kSpecials))]);
    }
  }

  template <class T>
  std::vector<T> Values(int64_t count) {
    return Fill<T>(count, [&] { return Value<T>(); });
  }
  template <class T>
  std::vector<T> HostileValues(int64_t count) {
    return Fill<T>(count, [&] { return Hostile<T>(); });
  }
  // Any bytes, some of the strings empty.
  std::vector<std::string> Strings(int64_t count, int64_t longest) {
    return Fill<std::string>(count, [&] {
      std::string string(static_cast<size_t>(Below(longest + 1)), '\0');
      for (char& byte : string) byte = static_cast<char>(Bits());
      return string;
    });
  }

 private:
  template <class T>
  static constexpr bool IsComplex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;
  template <class T>
  static constexpr int kMantissaBits = std::is_same_v<T, Half>       ? 10
                                       : std::is_same_v<T, BFloat16> ? 7
                                       : std::is_same_v<T, float>    ? 23
                                       : std::is_same_v<T, double>   ? 52
                                                                     : 0;
  template <class T>
  static constexpr int kSignShift = static_cast<int>(8 * sizeof(T)) - 1;
  // The bits of 1.0: the exponent in the middle of its range.
  template <class T>
  static constexpr uint64_t kOne = (uint64_t{1} << (kSignShift<T> - 1)) - (uint64_t{1} << kMantissaBits<T>);

  template <class T>
  static T FromBits(uint64_t bits) noexcept {
    if constexpr (std::is_same_v<T, bool>) {
      return (bits & 1) != 0;
    } else {
      static_assert(std::endian::native == std::endian::little && sizeof(T) <= sizeof(bits));
      T value;
      std::memcpy(&value, &bits, sizeof(T));
      return value;
    }
  }

  template <class T, class F>
  static std::vector<T> Fill(int64_t count, const F& next) {
    std::vector<T> values;
    values.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) values.push_back(next());
    return values;
  }

  uint64_t state_;
};

}  // namespace raggrad::testing
