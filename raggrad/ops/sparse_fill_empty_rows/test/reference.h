// The obvious serial code that tests and fuzzers compare the operators with. It flushes subnormals by hand, so it must
// run in the processor's normal floating-point mode.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "raggrad/core/dtype.h"
#include "raggrad/cpu/convert.h"
#include "raggrad/testing/owned.h"

namespace raggrad::sparse_fill_empty_rows::reference {

template <class F>
F Flushed(F x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(F{0}, x) : x;
}

// One step of the running sum.
template <class T>
T Add(T a, T b) {
  using Convert = cpu::BaselineConvert;
  if constexpr (std::is_same_v<T, Half>) {
    return Convert::NarrowToHalf(Convert::Widen(a) + Convert::Widen(b));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return Convert::NarrowToBFloat16(Add(Convert::Widen(a), Convert::Widen(b)));
  } else if constexpr (std::is_floating_point_v<T>) {
    return Flushed(Flushed(a) + Flushed(b));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return {Add(a.real(), b.real()), Add(a.imag(), b.imag())};
  }
}

struct GradResult {
  int64_t bad_position = -1;  // the first entry of the map that is out of range; then there is no result
  Tensor d_values, d_default_value;
};

inline GradResult Grad(std::span<const int64_t> reverse_index_map, const TensorView& grad_values) {
  const int64_t places = grad_values.dim(0);
  std::vector<bool> named(static_cast<size_t>(places));
  for (size_t i = 0; i < reverse_index_map.size(); ++i) {
    const int64_t place = reverse_index_map[i];
    if (place < 0 || place >= places) return {static_cast<int64_t>(i), {}, {}};
    named[static_cast<size_t>(place)] = true;
  }
  Result<Tensor> sum = Visit(NumberTypes{}, grad_values.dtype, [&]<class T>() -> Result<Tensor> {
    T total{};
    for (size_t j = 0; j < named.size(); ++j) {
      if (!named[j]) total = Add(total, grad_values.As<T>()[j]);
    }
    return testing::TensorOf(std::vector<T>{total}, Shape{});
  });
  return {-1, testing::Gather(grad_values, reverse_index_map), *std::move(sum)};
}

struct FillResult {
  int64_t bad_position = -1;  // the first entry whose row is out of range; then there is no result
  std::vector<int64_t> output_indices;
  std::vector<int64_t> sources;  // for each output value the position of its entry, or -1 for the default value
  std::vector<uint8_t> empty_row_indicator;
  std::vector<int64_t> reverse_index_map;
};

// indices: [n, d]
inline FillResult Fill(std::span<const int64_t> indices, size_t d, int64_t rows) {
  const size_t n = indices.size() / d;
  std::vector<std::vector<size_t>> entries(static_cast<size_t>(rows));
  for (size_t i = 0; i < n; ++i) {
    const int64_t row = indices[i * d];
    if (row < 0 || row >= rows) return {static_cast<int64_t>(i), {}, {}, {}, {}};
    entries[static_cast<size_t>(row)].push_back(i);
  }
  FillResult result;
  result.reverse_index_map.resize(n);
  for (size_t row = 0; row < entries.size(); ++row) {
    result.empty_row_indicator.push_back(entries[row].empty() ? 1 : 0);
    if (entries[row].empty()) {
      result.sources.push_back(-1);
      result.output_indices.push_back(static_cast<int64_t>(row));
      result.output_indices.resize(result.output_indices.size() + d - 1);
    }
    for (const size_t i : entries[row]) {
      result.reverse_index_map[i] = static_cast<int64_t>(result.sources.size());
      result.sources.push_back(static_cast<int64_t>(i));
      for (size_t c = 0; c < d; ++c) result.output_indices.push_back(indices[i * d + c]);
    }
  }
  return result;
}

}  // namespace raggrad::sparse_fill_empty_rows::reference
