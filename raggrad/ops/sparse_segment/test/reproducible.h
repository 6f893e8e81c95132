// The gradients and forwards with Accumulation::kReproducible: obvious serial code that tests compare with.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "raggrad/ops/sparse_segment/test/reference.h"
#include "raggrad/testing/reproducible_sum.h"

namespace raggrad::sparse_segment::reference {

using ::raggrad::testing::ExponentOf;
using ::raggrad::testing::ReproducibleSum;
using ::raggrad::testing::Terms;

// Appends the row that contributions sum to.
template <class T, class A>
void AppendRow(const Terms<A>& terms, double divisor, std::vector<T>& out) {
  const auto exponent = ExponentOf(terms);
  for (size_t c = 0; c < terms[0].size(); ++c) {
    std::vector<A> column;
    for (const std::vector<A>& row : terms) column.push_back(Flush(row[c]));
    Narrow(ReproducibleSum(column, exponent, divisor), out.emplace_back());
  }
}

// Rows of one sum: 1 and -1, which cancel from three rows on, rows of zeros, and last a row of numbers with all bits
// set and an exponent `depth` below that of 1. From some depth on these do not lie on the grid. Column 0 has only
// the 1.
template <class T>
std::vector<T> RowsBelowOne(int64_t rows, int64_t width, int depth) {
  using A = decltype(Widen(T{}));
  const double all_bits = std::is_same_v<T, Half>       ? 2 - 0x1p-10
                          : std::is_same_v<T, BFloat16> ? 2 - 0x1p-7
                          : std::is_same_v<T, float>    ? 2 - 0x1p-23
                                                        : 2 - 0x1p-52;
  std::vector<T> values;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < width; ++c) {
      double x = c == 0 ? 0.0 : row == 0 && rows > 2 ? 1.0 : row == 1 && rows > 2 ? -1.0 : 0.0;
      if (c == 0 && row == 0) x = 1.0;
      if (c > 0 && row == rows - 1) x = std::ldexp(c % 2 == 0 ? all_bits : -all_bits, -depth - static_cast<int>(c % 3));
      Narrow(static_cast<A>(x), values.emplace_back());
    }
  }
  return values;
}

// The rows of the gradient of good ids.
template <class T>
Rows<T> ReproducibleGrad(SegmentCombiner combiner, const T* grad, int64_t width, const std::vector<int64_t>& indices,
                         const std::vector<int64_t>& segment_ids) {
  using A = decltype(Widen(T{}));
  std::map<int64_t, double> counts;
  for (const int64_t segment : segment_ids) counts[segment] += 1;
  std::map<int64_t, Terms<A>> table;
  for (size_t i = 0; i < indices.size(); ++i) {
    const double count = counts[segment_ids[i]];
    const double scale = combiner == SegmentCombiner::kSum    ? 1.0
                         : combiner == SegmentCombiner::kMean ? 1.0 / count
                                                              : 1.0 / std::sqrt(count);
    std::vector<A>& row = table[indices[i]].emplace_back();
    for (int64_t c = 0; c < width; ++c) {
      row.push_back(Multiply(Widen(grad[segment_ids[i] * width + c]), static_cast<A>(scale)));
    }
  }
  Rows<T> rows;
  for (const auto& [row, terms] : table) {
    rows.unique.push_back(row);
    AppendRow(terms, 1.0, rows.values);
  }
  return rows;
}

// The [rows, width] output of the forward of good ids. Segments that no id names are zero.
template <class T>
std::vector<T> ReproducibleForward(SegmentCombiner combiner, const T* data, int64_t width,
                                   const std::vector<int64_t>& indices, const std::vector<int64_t>& segment_ids,
                                   int64_t rows) {
  using A = decltype(Widen(T{}));
  std::vector<T> output;
  for (int64_t segment = 0; segment < rows; ++segment) {
    Terms<A> terms;
    for (size_t i = 0; i < indices.size(); ++i) {
      if (segment_ids[i] != segment) continue;
      std::vector<A>& row = terms.emplace_back();
      for (int64_t c = 0; c < width; ++c) row.push_back(Widen(data[indices[i] * width + c]));
    }
    if (terms.empty()) {
      output.insert(output.end(), static_cast<size_t>(width), T{});
      continue;
    }
    const auto count = static_cast<double>(terms.size());
    AppendRow(terms,
              combiner == SegmentCombiner::kSum    ? 1.0
              : combiner == SegmentCombiner::kMean ? count
                                                   : std::sqrt(count),
              output);
  }
  return output;
}

}  // namespace raggrad::sparse_segment::reference
