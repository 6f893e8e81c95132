// Random bags and what CutIntoBags must make of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "raggrad/ops/bags/bags.h"

namespace raggrad::testing {

template <class T>
std::vector<T> ValuesOf(const TensorView& view) {
  return {view.As<T>(), view.As<T>() + view.dim(0)};
}

template <class Id>
struct BagCase {
  std::vector<Id> ids;
  std::vector<Id> offsets;
  std::vector<float> weights;
  bool include_last_offset = false;
  std::optional<int64_t> padding_id;

  template <class Generator>
  static BagCase Random(int64_t n, int64_t bags, bool include_last_offset, bool padding, Generator& random) {
    BagCase c;
    for (int64_t i = 0; i < n; ++i) {
      c.ids.push_back(static_cast<Id>(random() % 5));
      c.weights.push_back(static_cast<float>(i));
    }
    for (int64_t b = 0; b < bags + (include_last_offset ? 1 : 0); ++b) {
      c.offsets.push_back(b == 0 ? 0 : static_cast<Id>(random() % static_cast<uint64_t>(n + 1)));
    }
    std::sort(c.offsets.begin(), c.offsets.end());
    c.include_last_offset = include_last_offset;
    if (padding) c.padding_id = 2;
    return c;
  }

  BagOperands operands() const {
    return {.ids = TensorView::Vector<Id>(ids),
            .offsets = TensorView::Vector<Id>(offsets),
            .weights = TensorView::Vector<float>(weights),
            .include_last_offset = include_last_offset,
            .padding_id = padding_id};
  }

  // on_host(view) brings a view to the host.
  template <class F>
  void Expect(const Bags& got, const F& on_host) const {
    const auto bags = static_cast<int64_t>(offsets.size()) - (include_last_offset ? 1 : 0);
    EXPECT_EQ(got.count, bags);
    const auto end = bags == 0             ? int64_t{0}
                     : include_last_offset ? int64_t{offsets.back()}
                                           : static_cast<int64_t>(ids.size());
    std::vector<Id> want_ids;
    std::vector<int32_t> want_segments, want_positions;
    std::vector<float> want_weights;
    for (int64_t i = 0; i < end; ++i) {
      const auto place = static_cast<size_t>(i);
      if (padding_id && ids[place] == *padding_id) continue;
      const auto begin = offsets.begin();
      want_ids.push_back(ids[place]);
      want_weights.push_back(weights[place]);
      want_positions.push_back(static_cast<int32_t>(i));
      want_segments.push_back(
          static_cast<int32_t>(std::upper_bound(begin, begin + bags, static_cast<Id>(i)) - begin - 1));
    }
    EXPECT_EQ(ValuesOf<Id>(on_host(got.ids)), want_ids);
    EXPECT_EQ(ValuesOf<int32_t>(on_host(got.segment_ids)), want_segments);
    EXPECT_EQ(ValuesOf<float>(on_host(*got.weights)), want_weights);
    EXPECT_EQ(got.positions.has_value(), static_cast<int64_t>(want_ids.size()) != end);
    if (got.positions) {
      EXPECT_EQ(ValuesOf<int32_t>(on_host(*got.positions)), want_positions);
    }
  }
};

}  // namespace raggrad::testing
