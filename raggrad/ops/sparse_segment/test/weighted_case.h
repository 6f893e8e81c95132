// Ids, rows and weights for the tests of pooling with weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "raggrad/ops/sparse_segment/sparse_segment.h"
#include "raggrad/ops/sparse_segment/test/test_ids.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/combiners.h"
#include "raggrad/testing/generators.h"

namespace raggrad::sparse_segment {

// T: the type of rows, W: that of weights.
template <class T, class W>
struct Weighted {
  using Value = T;
  using Weight = W;
};

// All types of rows with weights of their own type, and with float32 weights.
using WeightedTypes = ::testing::Types<Weighted<Half, Half>, Weighted<Half, float>, Weighted<BFloat16, BFloat16>,
                                       Weighted<BFloat16, float>, Weighted<float, float>, Weighted<double, double>,
                                       Weighted<double, float>>;

template <class Types>
struct WeightedCase {
  using T = typename Types::Value;
  using W = typename Types::Weight;

  Ids indices{{}};
  Ids segment_ids{{}};
  int32_t table_rows = 0;
  int64_t num_segments = 0;
  int64_t width = 0;
  testing::Array<T> data{{}};
  testing::Array<T> grad{{}};
  testing::Array<W> weights{{}};

  // Segment s has lengths[s] ids. Values and weights are hostile, or normal numbers.
  static WeightedCase Random(uint64_t seed, const std::vector<int64_t>& lengths, int32_t rows, int64_t width,
                             bool hostile = true) {
    testing::Generator random(seed);
    WeightedCase c;
    c.table_rows = rows;
    c.num_segments = std::ssize(lengths);
    c.width = width;
    c.segment_ids = testing::Generator::RowIds<int64_t>(lengths);
    const int64_t n = std::ssize(c.segment_ids.wide);
    c.indices = random.UniformIds<int64_t>(n, rows);
    const auto values = [&]<class V>(int64_t count, V) {
      return hostile ? random.HostileValues<V>(count) : random.Values<V>(count);
    };
    c.data = {values(rows * width, T{}), Shape{rows, width}};
    c.grad = {values(c.num_segments * width, T{}), Shape{c.num_segments, width}};
    c.weights = {values(n, W{}), Shape{n}};
    return c;
  }
  // With segment ids in random order.
  void ShuffleSegments(uint64_t seed) {
    testing::Generator random(seed);
    segment_ids = random.UniformIds<int64_t>(std::ssize(indices.wide), num_segments);
  }

  SegmentPooling Pooling(SegmentCombiner combiner, WeightDivisor divisor) const {
    return {combiner, {weights, divisor}};
  }

  // Calls f(pooling) for each combiner and divisor.
  template <class F>
  void ForEachPooling(const F& f) const {
    for (const SegmentCombiner combiner : testing::kCombiners) {
      for (const auto divisor : {WeightDivisor::kWeights, WeightDivisor::kCount}) {
        SCOPED_TRACE("combiner " + std::to_string(static_cast<int>(combiner)) + ", divisor " +
                     std::to_string(static_cast<int>(divisor)));
        f(Pooling(combiner, divisor));
      }
    }
  }
};

}  // namespace raggrad::sparse_segment
