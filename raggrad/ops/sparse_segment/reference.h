// The obvious serial code: what tests and fuzzers hold the operators against. Slow, and exact.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "raggrad/cpu/convert.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::sparse_segment::reference {

template <class A>
A Flush(A x) {
  return std::fabs(x) < std::numeric_limits<A>::min() ? std::copysign(A{0}, x) : x;
}

inline float Widen(Half x) { return ::raggrad::cpu::BaselineConvert::Widen(x); }
inline float Widen(BFloat16 x) { return ::raggrad::cpu::BaselineConvert::Widen(x); }
inline float Widen(float x) { return x; }
inline double Widen(double x) { return x; }
inline void Narrow(float x, Half& out) { out = ::raggrad::cpu::BaselineConvert::NarrowToHalf(x); }
inline void Narrow(float x, BFloat16& out) { out = ::raggrad::cpu::BaselineConvert::NarrowToBFloat16(x); }
inline void Narrow(float x, float& out) { out = x; }
inline void Narrow(double x, double& out) { out = x; }

template <class T>
struct Rows {
  std::vector<int64_t> unique;  // ascending
  std::vector<T> values;        // [unique, width]
};

// The rows of the gradient, or nothing if an id is out of range. Ids are widened to int64 by the caller.
template <class T>
std::optional<Rows<T>> Grad(SegmentCombiner combiner, const T* grad, int64_t segments, int64_t width,
                            const std::vector<int64_t>& indices, const std::vector<int64_t>& segment_ids,
                            int64_t dim0) {
  using A = decltype(Widen(T{}));
  if (dim0 == 0) return Rows<T>{};
  std::map<int64_t, double> counts;
  for (const int64_t segment : segment_ids) {
    if (segment < 0 || segment >= segments) return std::nullopt;
    counts[segment] += 1;
  }
  std::map<int64_t, std::vector<A>> sums;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < 0 || indices[i] >= dim0) return std::nullopt;
    const double count = counts[segment_ids[i]];
    const double scale = combiner == SegmentCombiner::kSum    ? 1.0
                         : combiner == SegmentCombiner::kMean ? 1.0 / count
                                                              : 1.0 / std::sqrt(count);
    std::vector<A>& sum = sums[indices[i]];
    sum.resize(static_cast<size_t>(width), A{0});
    for (int64_t c = 0; c < width; ++c) {
      const A product = Flush(Flush(Widen(grad[segment_ids[i] * width + c])) * static_cast<A>(scale));
      sum[static_cast<size_t>(c)] = Flush(sum[static_cast<size_t>(c)] + product);
    }
  }
  Rows<T> rows;
  for (const auto& [row, sum] : sums) {
    rows.unique.push_back(row);
    for (const A value : sum) Narrow(value, rows.values.emplace_back());
  }
  return rows;
}

// The same rows in a dense [dim0, width].
template <class T>
std::vector<T> Densify(const Rows<T>& rows, int64_t dim0, int64_t width) {
  std::vector<T> dense(static_cast<size_t>(dim0 * width), T{});
  for (size_t u = 0; u < rows.unique.size(); ++u) {
    std::copy_n(rows.values.begin() + static_cast<int64_t>(u) * width, width, dense.begin() + rows.unique[u] * width);
  }
  return dense;
}

}  // namespace raggrad::sparse_segment::reference
