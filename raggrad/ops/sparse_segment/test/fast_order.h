// The sums of Accumulation::kFast on a GPU, in the order that sparse_segment.h states: obvious serial code that tests
// compare with.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "raggrad/ops/sparse_segment/test/reference.h"

namespace raggrad::sparse_segment::reference {

// One column of products, sorted by row, and the order in which the part of a row is summed.
template <class A>
struct FastColumn {
  std::vector<A> products;

  static constexpr int64_t kTile = 32, kContributionsPerGroup = 512;
  static constexpr size_t kParts = 16;

  // Cuts places [begin, end) at multiples of `size` and sums each cut with `sum_cut`.
  template <class F>
  static std::vector<A> Cut(int64_t begin, int64_t end, int64_t size, const F& sum_cut) {
    std::vector<A> sums;
    for (int64_t at = begin, stop; at < end; at = stop) {
      stop = std::min(end, (at / size + 1) * size);
      sums.push_back(sum_cut(at, stop));
    }
    return sums;
  }
  // Adds every `step`-th term from `first` on, left to right.
  static A AddUp(const std::vector<A>& terms, size_t first = 0, size_t step = 1) {
    A sum = terms[first];
    for (size_t i = first + step; i < terms.size(); i += step) sum = Flush(sum + terms[i]);
    return sum;
  }

  A Tile(int64_t begin, int64_t end) const {
    A sum = 0;
    for (int64_t i = begin; i < end; ++i) sum = Flush(sum + products[static_cast<size_t>(i)]);
    return sum;
  }
  A Group(int64_t begin, int64_t end) const {
    return AddUp(Cut(begin, end, kTile, [&](int64_t from, int64_t to) { return Tile(from, to); }));
  }
  A Row(int64_t begin, int64_t end) const {
    const std::vector<A> groups =
        Cut(begin, end, kContributionsPerGroup, [&](int64_t from, int64_t to) { return Group(from, to); });
    const std::vector<A> later(groups.begin() + 1, groups.end());
    std::vector<A> terms = {groups[0]};
    for (size_t part = 0; part < std::min(kParts, later.size()); ++part) terms.push_back(AddUp(later, part, kParts));
    return AddUp(terms);
  }
};

// [num_unique, width]: the rows of the gradient of good ids.
template <class T>
std::vector<T> FastRows(SegmentCombiner combiner, const T* grad, int64_t width, const std::vector<int64_t>& indices,
                        const std::vector<int64_t>& segment_ids, int64_t segments) {
  using A = decltype(Widen(T{}));
  std::vector<double> counts(static_cast<size_t>(segments));
  for (const int64_t segment : segment_ids) counts[static_cast<size_t>(segment)] += 1;
  std::vector<size_t> sorted(indices.size());
  std::iota(sorted.begin(), sorted.end(), size_t{0});
  std::ranges::stable_sort(sorted, {}, [&](size_t i) { return indices[i]; });

  std::vector<int64_t> begins;  // where each row begins, and the end
  for (size_t k = 0; k < sorted.size(); ++k) {
    if (k == 0 || indices[sorted[k]] != indices[sorted[k - 1]]) begins.push_back(static_cast<int64_t>(k));
  }
  const size_t rows = begins.size();
  begins.push_back(std::ssize(sorted));

  std::vector<T> values(rows * static_cast<size_t>(width));
  for (int64_t column = 0; column < width; ++column) {
    FastColumn<A> sums;
    for (const size_t i : sorted) {
      const double count = counts[static_cast<size_t>(segment_ids[i])];
      const double scale = combiner == SegmentCombiner::kSum    ? 1.0
                           : combiner == SegmentCombiner::kMean ? 1.0 / count
                                                                : 1.0 / std::sqrt(count);
      sums.products.push_back(Multiply(Widen(grad[segment_ids[i] * width + column]), static_cast<A>(scale)));
    }
    for (size_t row = 0; row < rows; ++row) {
      Narrow(sums.Row(begins[row], begins[row + 1]),
             values[row * static_cast<size_t>(width) + static_cast<size_t>(column)]);
    }
  }
  return values;
}

}  // namespace raggrad::sparse_segment::reference
