// Pooling with weights and Accumulation::kReproducible: obvious serial code that tests compare with.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "raggrad/ops/sparse_segment/test/reproducible.h"
#include "raggrad/ops/sparse_segment/test/weighted_reference.h"

namespace raggrad::sparse_segment::reference {

// The order-free sum of single numbers.
template <class A>
A SumInAnyOrder(const std::vector<A>& numbers) {
  Terms<A> terms;
  for (const A x : numbers) terms.push_back({x});
  return ReproducibleSum(numbers, ExponentOf(terms), 1.0);
}

// w: the weights of all ids, widened.
template <class A>
A ReproducibleDivisor(const SegmentPooling& pooling, const std::vector<A>& w, const std::vector<size_t>& ids) {
  const bool roots = pooling.combiner == SegmentCombiner::kSqrtN;
  if (pooling.combiner == SegmentCombiner::kSum || pooling.weights->divisor == WeightDivisor::kCount) {
    return Divisor(pooling, w, ids);
  }
  std::vector<A> terms;
  for (const size_t i : ids) terms.push_back(roots ? Multiply(w[i], Flush(w[i])) : w[i]);
  const A sum = SumInAnyOrder(terms);
  return roots ? std::sqrt(sum) : sum;
}

// The rows of the gradient of good ids. Contributions are grad * (w / D), rounded as without reproducible sums.
template <class T, class W>
Rows<T> ReproducibleWeightedGrad(const SegmentPooling& pooling, const std::vector<W>& weights, const T* grad,
                                 int64_t width, const std::vector<int64_t>& indices,
                                 const std::vector<int64_t>& segment_ids) {
  using A = SumType<T>;
  const std::vector<A> w = WidenAll<T>(weights);
  std::map<int64_t, A> divisors;
  for (const auto& [segment, ids] : SegmentsOf(segment_ids)) divisors[segment] = ReproducibleDivisor(pooling, w, ids);
  std::map<int64_t, Terms<A>> table;
  for (size_t i = 0; i < indices.size(); ++i) {
    const int64_t segment = segment_ids[i];
    const A factor = pooling.combiner == SegmentCombiner::kSum ? w[i] : DivideOrZero(w[i], divisors[segment]);
    std::vector<A>& row = table[indices[i]].emplace_back();
    for (int64_t c = 0; c < width; ++c) row.push_back(Multiply(Widen(grad[segment * width + c]), Flush(factor)));
  }
  Rows<T> rows;
  for (const auto& [row, terms] : table) {
    rows.unique.push_back(row);
    AppendRow(terms, 1.0, rows.values);
  }
  return rows;
}

}  // namespace raggrad::sparse_segment::reference
