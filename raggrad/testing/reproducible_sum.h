// The sums of Accumulation::kReproducible from their definition (core/sum_grid.h): contributions are rounded to whole
// multiples of the grid, which are added as integers. Slow, and exact.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace raggrad::testing {

template <class A>
A FlushSubnormal(A x) {
  return std::fabs(x) < std::numeric_limits<A>::min() ? std::copysign(A{0}, x) : x;
}

// The contributions of one row of the result: [n][width].
template <class A>
using Terms = std::vector<std::vector<A>>;

// floor(log2(x)) of the largest finite magnitude in any column, or nothing if that is zero.
template <class A>
std::optional<int> ExponentOf(const Terms<A>& terms) {
  A largest = 0;
  for (const std::vector<A>& row : terms) {
    for (const A x : row) {
      if (std::isfinite(x)) largest = std::max(largest, std::fabs(FlushSubnormal(x)));
    }
  }
  if (largest == 0) return std::nullopt;
  return std::ilogb(largest);
}

inline int BitLength(size_t n) {
  int bits = 0;
  for (; n != 0; n >>= 1) ++bits;
  return bits;
}

// The sum of NaNs and infinities, or nothing if all contributions are finite.
template <class A>
std::optional<A> SumOfNonFinite(const std::vector<A>& column) {
  std::optional<A> sum;
  for (const A x : column) {
    if (!std::isfinite(x)) sum = sum.value_or(A{0}) + x;
  }
  return sum;
}

// A sum of multiples of 2^-grid: sum / 2^-grid.
inline int64_t SumOnGrid(const std::vector<double>& column, int grid) {
  int64_t sum = 0;
  for (const double x : column) sum += static_cast<int64_t>(std::nearbyint(std::ldexp(x, grid)));
  return sum;
}

// One column of a row, its sum divided by `divisor`.
inline float ReproducibleSum(const std::vector<float>& column, std::optional<int> exponent, double divisor) {
  if (const auto special = SumOfNonFinite(column)) return *special;
  if (!exponent) return 0;
  const int grid = 51 - *exponent - BitLength(column.size());
  const std::vector<double> wide(column.begin(), column.end());
  return FlushSubnormal(static_cast<float>(std::ldexp(static_cast<double>(SumOnGrid(wide, grid)), -grid) / divisor)) +
         0.0F;
}

inline double ReproducibleSum(const std::vector<double>& column, std::optional<int> exponent, double divisor) {
  if (const auto special = SumOfNonFinite(column)) return *special;
  if (!exponent) return 0;
  const int bits = BitLength(column.size());
  const int grid = 51 - bits;
  const int grid2 = 103 - 2 * bits;
  std::vector<double> scaled, rest;
  for (const double x : column) {
    scaled.push_back(std::ldexp(x, -*exponent));
    rest.push_back(scaled.back() - std::ldexp(std::nearbyint(std::ldexp(scaled.back(), grid)), -grid));
  }
  const double sum = std::ldexp(static_cast<double>(SumOnGrid(scaled, grid)), -grid) +
                     std::ldexp(static_cast<double>(SumOnGrid(rest, grid2)), -grid2);
  return FlushSubnormal(std::ldexp(sum, *exponent) / divisor) + 0.0;
}

}  // namespace raggrad::testing
