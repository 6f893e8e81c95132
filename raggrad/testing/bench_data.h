// Data of the benchmark programs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "raggrad/core/tensor_view.h"
#include "raggrad/testing/generators.h"

namespace raggrad::bench {

using testing::Generator;

template <class T>
TensorView VectorView(const std::vector<T>& values) {
  return TensorView::Of(values.data(), Shape{static_cast<int64_t>(values.size())});
}

template <class T>
void Shuffle(Generator& random, std::vector<T>& values) {
  for (size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
  }
}

// The numbers [0, count) in random order.
template <class I>
std::vector<I> Permutation(Generator& random, int64_t count) {
  std::vector<I> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), I{0});
  Shuffle(random, numbers);
  return numbers;
}

// Indices into a table. The k-th most frequent one has weight k^-1.05; which one that is, is random.
template <class I>
std::vector<I> ZipfRows(Generator& random, int64_t count, int64_t table_rows, double exponent = 1.05) {
  std::vector<double> weights(static_cast<size_t>(table_rows));
  double sum = 0;
  for (size_t k = 0; k < weights.size(); ++k) weights[k] = sum += std::pow(static_cast<double>(k + 1), -exponent);
  const std::vector<I> row_of_rank = Permutation<I>(random, table_rows);
  std::vector<I> ids(static_cast<size_t>(count));
  for (I& id : ids) {
    const auto rank = std::ranges::upper_bound(weights, random.Unit() * sum) - weights.begin();
    id = row_of_rank[static_cast<size_t>(std::min(rank, static_cast<ptrdiff_t>(table_rows - 1)))];
  }
  return ids;
}

}  // namespace raggrad::bench
