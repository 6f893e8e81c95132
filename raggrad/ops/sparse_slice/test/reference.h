// The obvious serial code that tests and fuzzers compare the operators with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "raggrad/core/shape.h"

namespace raggrad::sparse_slice::reference {

struct GradResult {
  std::vector<int64_t> sources;  // for each entry the position of its gradient; -1: its gradient is 0
  int64_t used = 0;              // gradients that found their entry; the operator fails with INTERNAL if not all did
};

// n, m: rows of input_indices and of output_indices. The number of columns is input_start's size.
inline GradResult Grad(std::span<const int64_t> input_indices, std::span<const int64_t> input_start,
                       std::span<const int64_t> output_indices, int64_t n, int64_t m) {
  const size_t d = input_start.size();
  GradResult result{std::vector<int64_t>(static_cast<size_t>(n), -1)};
  size_t j = 0;
  for (size_t i = 0; i < static_cast<size_t>(n) && j < static_cast<size_t>(m); ++i) {
    bool match = true;
    for (size_t c = 0; c < d; ++c) {
      const uint64_t moved = static_cast<uint64_t>(output_indices[j * d + c]) + static_cast<uint64_t>(input_start[c]);
      match = match && static_cast<uint64_t>(input_indices[i * d + c]) == moved;
    }
    if (match) result.sources[i] = static_cast<int64_t>(j++);
  }
  result.used = static_cast<int64_t>(j);
  return result;
}

struct SliceResult {
  bool ok = false;  // false: shape, start and size do not fit together
  std::vector<int64_t> output_indices;
  std::vector<int64_t> sources;  // for each output value the position of its entry
  std::vector<int64_t> output_shape;
};

// n: rows of `indices`. The number of columns is that of shape, start and size, and at most 254. Computes in 128 bits,
// so that nothing wraps.
inline SliceResult Slice(std::span<const int64_t> indices, std::span<const int64_t> shape,
                         std::span<const int64_t> start, std::span<const int64_t> size, int64_t n) {
  __extension__ using Wide = __int128;
  constexpr Wide kLimit = Wide{1} << 63;
  const size_t d = shape.size();
  const auto is_shape = [](const std::vector<int64_t>& dims) { return Shape::Product(dims).has_value(); };
  SliceResult result{false, {}, {}, {shape.begin(), shape.end()}};
  if (!is_shape(result.output_shape)) return result;
  for (size_t c = 0; c < d; ++c) {
    const Wide end = Wide{start[c]} + size[c];
    if (start[c] < shape[c] && end >= kLimit) return result;
    const Wide rest = Wide{shape[c]} - start[c];
    result.output_shape[c] = end < shape[c] ? size[c] : static_cast<int64_t>(std::max<Wide>(rest, 0));
    if (!is_shape(result.output_shape)) return result;
  }
  result.ok = true;
  for (int64_t i = 0; i < n; ++i) {
    const std::span index = indices.subspan(static_cast<size_t>(i) * d, d);
    bool kept = true;
    for (size_t c = 0; c < d; ++c) {
      const Wide end = Wide{start[c]} + size[c];
      kept = kept && end < kLimit && start[c] <= index[c] && index[c] < end;
    }
    if (!kept) continue;
    result.sources.push_back(i);
    for (size_t c = 0; c < d; ++c) result.output_indices.push_back(index[c] - start[c]);
  }
  return result;
}

}  // namespace raggrad::sparse_slice::reference
