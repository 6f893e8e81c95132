// The obvious serial code that tests and fuzzers compare the operators with. Slow, and exact.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "raggrad/core/sum_type.h"
#include "raggrad/cpu/convert.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::sparse_segment::reference {

template <class A>
A Flush(A x) {
  return std::fabs(x) < std::numeric_limits<A>::min() ? std::copysign(A{0}, x) : x;
}

// Computes compute(x), a product or quotient of x, and flushes it. Machines differ in when a result counts as subnormal
// that is rounded up to the smallest normal number: aarch64 judges the exact result, x86 the one that is rounded as if
// exponents had no limit. Multiplied by a power of two, x gives the latter; as a long double, aarch64's gives the
// former.
template <class A, class F>
A FlushRounded(A x, const F& compute) {
  constexpr A kSmallest = std::numeric_limits<A>::min();
  const A rounded = compute(x);
  if (std::fabs(rounded) == kSmallest) {
#if defined(__aarch64__)
    const bool subnormal = std::fabs(compute(static_cast<long double>(x))) < kSmallest;
#else
    constexpr A kLarge = A{1} / kSmallest;
    const bool subnormal = std::fabs(compute(x * kLarge)) < kSmallest * kLarge;
#endif
    if (subnormal) return std::copysign(A{0}, rounded);
  }
  return Flush(rounded);
}

template <class A>
A Multiply(A a, A b) {
  return FlushRounded(Flush(a), [&](auto x) { return x * b; });
}

inline float Widen(Half x) { return cpu::BaselineConvert::Widen(x); }
inline float Widen(BFloat16 x) { return cpu::BaselineConvert::Widen(x); }
inline float Widen(float x) { return x; }
inline double Widen(double x) { return x; }
template <std::integral T>
T Widen(T x) {
  return x;
}
inline void Narrow(float x, Half& out) { out = cpu::BaselineConvert::NarrowToHalf(x); }
inline void Narrow(float x, BFloat16& out) { out = cpu::BaselineConvert::NarrowToBFloat16(x); }
inline void Narrow(float x, float& out) { out = x; }
inline void Narrow(double x, double& out) { out = x; }
template <std::integral T>
void Narrow(T x, T& out) {
  out = x;
}

template <class T>
struct Rows {
  std::vector<int64_t> unique;  // [num_unique], ascending
  std::vector<T> values;        // [num_unique, width]
};

// Narrows the sums of rows.
template <class T>
Rows<T> RowsOf(const std::map<int64_t, std::vector<SumType<T>>>& sums) {
  Rows<T> rows;
  for (const auto& [row, sum] : sums) {
    rows.unique.push_back(row);
    for (const SumType<T> value : sum) Narrow(value, rows.values.emplace_back());
  }
  return rows;
}

// The rows of the gradient, or nothing if an id is out of range. The caller widens ids to int64.
template <class T>
std::optional<Rows<T>> Grad(SegmentCombiner combiner, const T* grad, int64_t segments, int64_t width,
                            const std::vector<int64_t>& indices, const std::vector<int64_t>& segment_ids,
                            int64_t table_rows) {
  using A = decltype(Widen(T{}));
  if (table_rows == 0) return Rows<T>{};
  std::map<int64_t, double> counts;
  for (const int64_t segment : segment_ids) {
    if (segment < 0 || segment >= segments) return std::nullopt;
    counts[segment] += 1;
  }
  std::map<int64_t, std::vector<A>> sums;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < 0 || indices[i] >= table_rows) return std::nullopt;
    const double count = counts[segment_ids[i]];
    const double scale = combiner == SegmentCombiner::kSum    ? 1.0
                         : combiner == SegmentCombiner::kMean ? 1.0 / count
                                                              : 1.0 / std::sqrt(count);
    std::vector<A>& sum = sums[indices[i]];
    sum.resize(static_cast<size_t>(width), A{0});
    for (int64_t c = 0; c < width; ++c) {
      const A product = Multiply(Widen(grad[segment_ids[i] * width + c]), static_cast<A>(scale));
      sum[static_cast<size_t>(c)] = Flush(sum[static_cast<size_t>(c)] + product);
    }
  }
  return RowsOf<T>(sums);
}

// The same rows in a dense [table_rows, width].
template <class T>
std::vector<T> Densify(const Rows<T>& rows, int64_t table_rows, int64_t width) {
  std::vector<T> dense(static_cast<size_t>(table_rows * width), T{});
  for (size_t u = 0; u < rows.unique.size(); ++u) {
    std::copy_n(rows.values.begin() + static_cast<int64_t>(u) * width, width, dense.begin() + rows.unique[u] * width);
  }
  return dense;
}

template <class A>
A Add(A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return Flush(Flush(a) + Flush(b));
  }
}

// Mean and SqrtN: up to nine rows are scaled by a reciprocal before the groups are added, more are divided at the end.
template <class A>
A Scale(SegmentCombiner combiner, size_t n, bool at_end, A total) {
  if constexpr (std::is_floating_point_v<A>) {
    if (combiner == SegmentCombiner::kSum || at_end != (n >= 10)) return total;
    const double count = static_cast<double>(n);
    const A divisor = static_cast<A>(combiner == SegmentCombiner::kMean ? count : std::sqrt(count));
    if (!at_end) return Multiply(total, A{1} / divisor);
    return FlushRounded(total, [&](auto x) { return x / divisor; });
  }
  return total;
}

// Pools one column of a segment of two or more rows.
template <class A>
A Pool(SegmentCombiner combiner, const std::vector<A>& x) {
  const auto sum = [&](size_t begin, size_t end) {
    A total = x[begin];
    for (size_t i = begin + 1; i < end; ++i) total = Add(total, x[i]);
    return total;
  };
  const size_t n = x.size();
  const size_t first = n % 8 == 0 ? 8 : n % 8 == 1 ? 9 : n % 8;
  A total = Scale(combiner, n, /*at_end=*/false, sum(0, first));
  for (size_t i = first; i < n; i += 8) total = Add(total, sum(i, i + 8));
  return Scale(combiner, n, /*at_end=*/true, total);
}

// The [rows, width] output of the forward, or nothing if an id is out of range or segment ids descend.
template <class T>
std::optional<std::vector<T>> Forward(SegmentCombiner combiner, const T* data, int64_t table_rows, int64_t width,
                                      const std::vector<int64_t>& indices, const std::vector<int64_t>& segment_ids,
                                      int64_t rows) {
  std::vector<T> output(static_cast<size_t>(rows * width), T{});
  for (size_t begin = 0, end = 0; begin < indices.size(); begin = end) {
    const int64_t segment = segment_ids[begin];
    for (; end < indices.size() && segment_ids[end] == segment; ++end) {
      if (indices[end] < 0 || indices[end] >= table_rows) return std::nullopt;
    }
    if (segment < 0 || segment >= rows) return std::nullopt;
    if (end < indices.size() && segment_ids[end] < segment) return std::nullopt;
    for (int64_t c = 0; c < width; ++c) {
      T& out = output[static_cast<size_t>(segment * width + c)];
      if (end - begin == 1) {
        out = data[indices[begin] * width + c];
        continue;
      }
      std::vector<decltype(Widen(T{}))> column;
      for (size_t i = begin; i < end; ++i) column.push_back(Widen(data[indices[i] * width + c]));
      Narrow(Pool(combiner, column), out);
    }
  }
  return output;
}

}  // namespace raggrad::sparse_segment::reference
