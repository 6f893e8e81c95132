// Rows with segment ids in any order, and the obvious way to pool them: ids in range are sorted, and SparseSegment
// pools the rows that they name.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "raggrad/core/result.h"
#include "raggrad/ops/sparse_segment/segment_order.h"
#include "raggrad/ops/sparse_segment/segment_pooling.h"
#include "raggrad/ops/sparse_segment/test/test_ids.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/random_tensor.h"

namespace raggrad::sparse_segment {

struct SegmentsCase {
  std::string name;
  Tensor data;
  Ids ids;
  int64_t num_segments;
  std::vector<int64_t> sorted;  // positions of ids in range, by id; found once, since tests pool a case in many ways

  SegmentsCase(std::string called, DType dtype, std::vector<int64_t> segment_ids, int64_t count, const Shape& inner)
      : name(std::move(called)),
        data(Rows(dtype, std::ssize(segment_ids), inner)),
        ids(std::move(segment_ids)),
        num_segments(count),
        sorted(Sorted()) {}

  Segments With(const TensorView& view, OutOfRange out_of_range = OutOfRange::kDrop) const {
    return {.ids = view, .count = num_segments, .out_of_range = out_of_range};
  }
  bool InRange(int64_t id) const { return id >= 0 && id < num_segments; }
  bool AllInRange() const {
    return std::ranges::all_of(ids.wide, [&](int64_t id) { return InRange(id); });
  }

  Result<Tensor> Expected(SegmentCombiner combiner, const Context& ctx) const {
    std::vector<int64_t> segments;
    for (const int64_t i : sorted) segments.push_back(ids.wide[static_cast<size_t>(i)]);
    return SparseSegmentWithNumSegments(combiner, data.view(), TensorView::Vector<int64_t>(sorted),
                                        TensorView::Vector<int64_t>(segments), TensorView::Scalar(num_segments), ctx);
  }

 private:
  std::vector<int64_t> Sorted() const {
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < std::ssize(ids.wide); ++i) {
      if (InRange(ids.wide[static_cast<size_t>(i)])) positions.push_back(i);
    }
    std::ranges::stable_sort(positions, {}, [&](int64_t i) { return ids.wide[static_cast<size_t>(i)]; });
    return positions;
  }

  static Tensor Rows(DType dtype, int64_t n, const Shape& inner) {
    testing::Generator random(static_cast<uint64_t>(n));
    return testing::HostileTensor(random, dtype, Shape::WithDim0(n, inner.dims()));
  }
};

// Orders of ids, most of them with some out of range at all kinds of places.
inline std::vector<SegmentsCase> SegmentsCases(DType dtype, const Shape& inner) {
  testing::Generator random(5);
  std::vector<int64_t> ascending;
  for (int64_t i = 0; i < 3'000; ++i) ascending.push_back(i / 7);
  std::vector<int64_t> padded = ascending, some = random.ZipfIds<int64_t>(5'000, 300);
  std::fill(padded.begin(), padded.begin() + 40, -1);
  std::fill(padded.end() - 40, padded.end(), 500);
  std::vector<int64_t> behind = ascending;
  std::fill(behind.end() - 40, behind.end(), -1);
  for (size_t i = 0; i < some.size(); i += 3) some[i] = std::vector<int64_t>{-1, 300, INT32_MIN, INT32_MAX}[i % 4];
  std::vector<SegmentsCase> cases;
  cases.emplace_back("no ids", dtype, std::vector<int64_t>{}, 4, inner);
  cases.emplace_back("no ids and no segments", dtype, std::vector<int64_t>{}, 0, inner);
  cases.emplace_back("one id", dtype, std::vector<int64_t>{2}, 4, inner);
  cases.emplace_back("one id out of range", dtype, std::vector<int64_t>{-1}, 4, inner);
  cases.emplace_back("the first id out of range, the others ascend", dtype, std::vector<int64_t>{-5, 0, 0, 1}, 2,
                     inner);
  cases.emplace_back("no segments", dtype, std::vector<int64_t>{0, 1, -1}, 0, inner);
  cases.emplace_back("all out of range", dtype, std::vector<int64_t>(100, 9), 9, inner);
  cases.emplace_back("ascending", dtype, ascending, 429, inner);
  cases.emplace_back("ascending, padded at both ends", dtype, padded, 429, inner);
  cases.emplace_back("ascending, padded with -1 at the end", dtype, behind, 429, inner);
  cases.emplace_back("any order", dtype, random.UniformIds<int64_t>(5'000, 300), 300, inner);
  cases.emplace_back("some out of range", dtype, some, 300, inner);
  cases.emplace_back("one segment", dtype, std::vector<int64_t>(2'000, 0), 1, inner);
  cases.emplace_back("far apart", dtype, std::vector<int64_t>{9'000, 0, 9'999, 50, 9'000}, 10'000, inner);
  return cases;
}

// The same for rows of a table that indices name. Those of ids out of range name any row.
struct BagsCase {
  static constexpr int64_t kRows = 60;

  SegmentsCase bags;
  Tensor table;
  Ids indices;
  testing::Array<float> weights;

  BagsCase(SegmentsCase segments, const Shape& inner)
      : bags(std::move(segments)),
        table(Table(bags.data.dtype(), inner)),
        indices(Indices(bags)),
        weights(Weights(bags)) {}

  SegmentPooling Pooling(SegmentCombiner combiner, const TensorView* weights_of_ids) const {
    if (weights_of_ids == nullptr) return combiner;
    return {combiner, {*weights_of_ids, WeightDivisor::kCount}};
  }

  Result<Tensor> Expected(SegmentCombiner combiner, bool weighted, const Context& ctx) const {
    std::vector<int64_t> rows, segments;
    std::vector<float> kept;
    for (const int64_t i : bags.sorted) {
      rows.push_back(indices.wide[static_cast<size_t>(i)]);
      segments.push_back(bags.ids.wide[static_cast<size_t>(i)]);
      kept.push_back(weights.view().As<float>()[i]);
    }
    const TensorView kept_weights = TensorView::Vector<float>(kept);
    return SparseSegmentWithNumSegments(Pooling(combiner, weighted ? &kept_weights : nullptr), table.view(),
                                        TensorView::Vector<int64_t>(rows), TensorView::Vector<int64_t>(segments),
                                        TensorView::Scalar(bags.num_segments), ctx);
  }

 private:
  static Tensor Table(DType dtype, const Shape& inner) {
    testing::Generator random(7);
    return testing::HostileTensor(random, dtype, Shape::WithDim0(kRows, inner.dims()));
  }
  static std::vector<int64_t> Indices(const SegmentsCase& bags) {
    std::vector<int64_t> indices = testing::Generator(8).ZipfIds<int64_t>(std::ssize(bags.ids.wide), kRows);
    for (size_t i = 0; i < indices.size(); ++i) {
      if (!bags.InRange(bags.ids.wide[i])) indices[i] = std::vector<int64_t>{-7, kRows, 3, INT32_MAX}[i % 4];
    }
    return indices;
  }
  static std::vector<float> Weights(const SegmentsCase& bags) {
    std::vector<float> weights = testing::Generator(9).Values<float>(std::ssize(bags.ids.wide));
    for (size_t i = 0; i < weights.size(); ++i) {
      if (!bags.InRange(bags.ids.wide[i])) weights[i] = std::numeric_limits<float>::quiet_NaN();
    }
    return weights;
  }
};

}  // namespace raggrad::sparse_segment
