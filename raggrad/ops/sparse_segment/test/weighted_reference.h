// The obvious serial code of pooling with weights, as segment_pooling.h and sparse_segment.h define it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "raggrad/core/sum_type.h"
#include "raggrad/ops/sparse_segment/test/reference.h"

namespace raggrad::sparse_segment::reference {

// The ids of each segment, in order.
using Segments = std::map<int64_t, std::vector<size_t>>;

inline Segments SegmentsOf(const std::vector<int64_t>& segment_ids) {
  Segments segments;
  for (size_t i = 0; i < segment_ids.size(); ++i) segments[segment_ids[i]].push_back(i);
  return segments;
}

template <class A>
A DivideOrZero(A x, A divisor) {
  if (Flush(divisor) == 0) return 0;
  return FlushRounded(Flush(x), [&](auto y) { return y / Flush(divisor); });
}

// w: the weights of all ids, widened.
template <class A>
A Divisor(const SegmentPooling& pooling, const std::vector<A>& w, const std::vector<size_t>& ids) {
  const bool roots = pooling.combiner == SegmentCombiner::kSqrtN;
  if (pooling.combiner == SegmentCombiner::kSum) return 1;
  if (pooling.weights->divisor == WeightDivisor::kCount) {
    const auto count = static_cast<double>(ids.size());
    return static_cast<A>(roots ? std::sqrt(count) : count);
  }
  A sum = 0;
  for (const size_t i : ids) sum = Add(sum, roots ? Multiply(w[i], Flush(w[i])) : w[i]);
  return roots ? std::sqrt(sum) : sum;
}

// Adds up in the order of TensorFlow's segment_sum.
template <class A>
A SegmentSum(const std::vector<A>& x) {
  if (x.size() == 1) return x[0];
  A sums[4] = {};
  size_t i = 0;
  if (x.size() >= 16) {
    for (; i < x.size() / 4 * 4; ++i) sums[i % 4] = Add(sums[i % 4], x[i]);
    for (int s = 1; s < 4; ++s) sums[0] = Add(sums[0], sums[s]);
  }
  for (; i < x.size(); ++i) sums[0] = Add(sums[0], x[i]);
  return sums[0];
}

// Weights in the type in which they are used with rows of type T.
template <class T, class W>
std::vector<SumType<T>> WidenAll(const std::vector<W>& weights) {
  std::vector<SumType<T>> wide;
  for (const W& w : weights) wide.push_back(Flush(Widen(w)));
  return wide;
}

// [rows, width]
template <class T, class W>
std::vector<T> WeightedForward(const SegmentPooling& pooling, const std::vector<W>& weights, const T* data,
                               int64_t width, const std::vector<int64_t>& indices,
                               const std::vector<int64_t>& segment_ids, int64_t rows) {
  using A = SumType<T>;
  const std::vector<A> w = WidenAll<T>(weights);
  std::vector<T> output(static_cast<size_t>(rows * width), T{});
  for (const auto& [segment, ids] : SegmentsOf(segment_ids)) {
    const A divisor = Divisor(pooling, w, ids);
    for (int64_t c = 0; c < width; ++c) {
      std::vector<A> products;
      for (const size_t i : ids) products.push_back(Multiply(Widen(data[indices[i] * width + c]), Flush(w[i])));
      A sum = SegmentSum(products);
      if (pooling.combiner != SegmentCombiner::kSum) sum = DivideOrZero(sum, divisor);
      Narrow(sum, output[static_cast<size_t>(segment * width + c)]);
    }
  }
  return output;
}

// The rows of the gradient, summed left to right.
template <class T, class W>
Rows<T> WeightedGrad(const SegmentPooling& pooling, const std::vector<W>& weights, const T* grad, int64_t width,
                     const std::vector<int64_t>& indices, const std::vector<int64_t>& segment_ids) {
  using A = SumType<T>;
  const std::vector<A> w = WidenAll<T>(weights);
  std::map<int64_t, A> divisors;
  for (const auto& [segment, ids] : SegmentsOf(segment_ids)) divisors[segment] = Divisor(pooling, w, ids);
  std::map<int64_t, std::vector<A>> sums;
  for (size_t i = 0; i < indices.size(); ++i) {
    const A factor = pooling.combiner == SegmentCombiner::kSum ? w[i] : DivideOrZero(w[i], divisors[segment_ids[i]]);
    std::vector<A>& sum = sums[indices[i]];
    sum.resize(static_cast<size_t>(width), A{0});
    for (int64_t c = 0; c < width; ++c) {
      const A product = Multiply(Widen(grad[segment_ids[i] * width + c]), Flush(factor));
      sum[static_cast<size_t>(c)] = Add(sum[static_cast<size_t>(c)], product);
    }
  }
  return RowsOf<T>(sums);
}

// The dot product of two rows, in 16 partial sums.
template <class T>
SumType<T> Dot(const T* a, const T* b, int64_t width) {
  using A = SumType<T>;
  A sums[16] = {};
  for (int64_t c = 0; c < width; ++c) sums[c % 16] = Add(sums[c % 16], Multiply(Widen(a[c]), Flush(Widen(b[c]))));
  for (int half = 8; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) sums[l] = Add(sums[l], sums[l + half]);
  }
  return sums[0];
}

inline void NarrowTo(double x, float& out) { out = Flush(static_cast<float>(x)); }
inline void NarrowTo(double x, double& out) { out = x; }
template <class W>
void NarrowTo(float x, W& out) {
  Narrow(x, out);
}

// [n]
template <class T, class W>
std::vector<W> WeightsGrad(const SegmentPooling& pooling, const std::vector<W>& weights, const T* grad, const T* data,
                           int64_t width, const std::vector<int64_t>& indices,
                           const std::vector<int64_t>& segment_ids) {
  using A = SumType<T>;
  const std::vector<A> w = WidenAll<T>(weights);
  std::vector<W> output(weights.size());
  for (const auto& [segment, ids] : SegmentsOf(segment_ids)) {
    const A divisor = Divisor(pooling, w, ids);
    std::map<size_t, A> dots;
    for (const size_t i : ids) dots[i] = Dot(grad + segment * width, data + indices[i] * width, width);
    A total = 0;
    for (const size_t i : ids) total = Add(total, Multiply(w[i], Flush(dots[i])));
    const A mean = DivideOrZero(total, divisor);
    for (const size_t i : ids) {
      A slope = dots[i];
      if (pooling.combiner != SegmentCombiner::kSum) {
        if (pooling.weights->divisor == WeightDivisor::kWeights) {
          const A through =
              pooling.combiner == SegmentCombiner::kMean ? mean : Multiply(w[i], DivideOrZero(mean, divisor));
          slope = Add(slope, -through);
        }
        slope = DivideOrZero(slope, divisor);
      }
      NarrowTo(slope, output[i]);
    }
  }
  return output;
}

}  // namespace raggrad::sparse_segment::reference
