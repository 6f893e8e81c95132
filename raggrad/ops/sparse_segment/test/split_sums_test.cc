// Reproducible sums of terms that several processes have: the bits of one call with all of them.
#include "raggrad/ops/sparse_segment/split_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "raggrad/ops/sparse_segment/test/reproducible.h"
#include "raggrad/ops/sparse_segment/test/test_ids.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/combiners.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"
#include "raggrad/testing/wide_values.h"

namespace raggrad {
namespace {

using ::raggrad::sparse_segment::Ids;
using ::raggrad::testing::Array;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::kCombiners;
using ::raggrad::testing::kWideRanges;
using ::raggrad::testing::StatusIs;
using ::raggrad::testing::WideValues;
using ::testing::HasSubstr;
namespace reference = sparse_segment::reference;

// The terms that one process has.
template <class V>
struct Part {
  std::vector<int64_t> indices, segment_ids;
  std::vector<SumType<V>> factors;
};

// Runs the three steps over `parts`, as processes would.
template <class V>
Result<Tensor> SumOfParts(SegmentCombiner combiner, const Array<V>& data, const std::vector<Part<V>>& parts,
                          int64_t segments, const Context& ctx) {
  using A = SumType<V>;
  const auto size = static_cast<size_t>(segments);
  Array<A> largest(std::vector<A>(size, A{0}));
  Array<int64_t> counts(std::vector<int64_t>(size, 0));
  std::vector<double> total;
  const auto for_each_part = [&](const auto& step) -> Status {
    for (size_t k = 0; k < parts.size(); ++k) {
      const Ids indices(parts[k].indices), segment_ids(parts[k].segment_ids);
      SplitTerms terms{data, indices.As(k % 2 == 0 ? DType::kInt32 : DType::kInt64),
                       segment_ids.As(k % 4 < 2 ? DType::kInt32 : DType::kInt64)};
      if (!parts[k].factors.empty()) terms.factors = TensorView::Vector<A>(parts[k].factors);
      if (Status s = step(parts[k], terms); !s.ok()) return s;
    }
    return {};
  };
  Status status = for_each_part([&](const Part<V>& part, const SplitTerms& terms) -> Status {
    const auto found = LargestSplitTerms(terms, segments, ctx);
    if (!found.ok()) return found.status();
    for (size_t s = 0; s < size; ++s) largest.values[s] = std::max(largest.values[s], found->template As<A>()[s]);
    for (const int64_t s : part.segment_ids) ++counts.values[static_cast<size_t>(s)];
    return {};
  });
  if (!status.ok()) return status;
  status = for_each_part([&](const Part<V>&, const SplitTerms& terms) -> Status {
    const auto sums = SumSplitTerms(terms, largest, counts, ctx);
    if (!sums.ok()) return sums.status();
    const auto n = static_cast<size_t>(*sums->shape().NumElements());
    total.resize(n, 0.0);
    for (size_t i = 0; i < n; ++i) total[i] += sums->template As<double>()[i];
    return {};
  });
  if (!status.ok()) return status;
  const auto row = segments > 0 ? static_cast<int64_t>(total.size()) / segments : 0;
  return RoundSplitSums(combiner, kDTypeOf<V>, Array<double>(total, Shape{segments, row}), largest, counts, ctx);
}

template <class V>
struct Case {
  Array<V> data{{}};
  std::vector<int64_t> indices, segment_ids;
  int64_t segments = 0;

  static Case Random(int64_t n, int64_t rows, int64_t width, int64_t segments, int range, std::mt19937& random) {
    const auto below = [&](int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint64_t>(limit)); };
    Case c;
    c.segments = segments;
    c.data = {WideValues<V>(static_cast<size_t>(rows * width), range, random), Shape{rows, width}};
    for (int64_t i = 0; i < n; ++i) {
      c.indices.push_back(below(rows));
      c.segment_ids.push_back(below(segments));
    }
    std::sort(c.segment_ids.begin(), c.segment_ids.end());
    return c;
  }
  std::vector<Part<V>> DividedInto(size_t count, std::mt19937& random) const {
    std::vector<Part<V>> parts(count);
    for (size_t i = 0; i < indices.size(); ++i) {
      Part<V>& part = parts[random() % count];
      part.indices.push_back(indices[i]);
      part.segment_ids.push_back(segment_ids[i]);
    }
    return parts;
  }
  Array<V> Expected(SegmentCombiner combiner) const {
    const int64_t width = data.shape[1];
    return {reference::ReproducibleForward(combiner, data.values.data(), width, indices, segment_ids, segments),
            Shape{segments, width}};
  }
};

template <class V>
class SplitSumsTest : public ::testing::Test {};
TYPED_TEST_SUITE(SplitSumsTest, GtestTypes<FloatTypes>);

TYPED_TEST(SplitSumsTest, HasTheBitsOfOneForwardHoweverTermsAreDivided) {
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    const int64_t width = std::vector<int64_t>{1, 2, 8, 15, 33, 257}[static_cast<size_t>(i) % 6];
    const auto c = Case<TypeParam>::Random(1 + i, 9, width, 1 + i % 7, i % kWideRanges, random);
    const SegmentCombiner combiner = kCombiners[i % 3];
    const Array<TypeParam> want = c.Expected(combiner);
    const auto parts = c.DividedInto(1 + static_cast<size_t>(i) % 8, random);
    ForEachSetting([&](const Context& ctx) {
      const auto got = SumOfParts(combiner, c.data, parts, c.segments, ctx);
      ASSERT_THAT(got, IsOk());
      ASSERT_TRUE(HoldsBits(got->view(), want)) << "case " << i;
    });
  }
}

TYPED_TEST(SplitSumsTest, SplitsLongSumsOverWorkers) {
  std::mt19937 random(2);
  for (const int64_t width : {1, 100}) {
    for (const int64_t segments : {1, 40}) {
      const auto c = Case<TypeParam>::Random(60'000 / width, 300, width, segments, 0, random);
      const Array<TypeParam> want = c.Expected(SegmentCombiner::kMean);
      const auto parts = c.DividedInto(3, random);
      ForEachSetting([&](const Context& ctx) {
        const auto got = SumOfParts(SegmentCombiner::kMean, c.data, parts, segments, ctx);
        ASSERT_THAT(got, IsOk());
        EXPECT_TRUE(HoldsBits(got->view(), want));
      });
    }
  }
}

// Rows of the table are the segments, and segments of the forward the indices.
TYPED_TEST(SplitSumsTest, HasTheBitsOfOneGradientWithScalesAsFactors) {
  using A = SumType<TypeParam>;
  std::mt19937 random(3);
  for (int i = 0; i < 60; ++i) {
    const int64_t bags = 1 + i % 9, width = 1 + i % 11, table_rows = 1 + i % 5;
    const SegmentCombiner combiner = kCombiners[i % 3];
    const auto c = Case<TypeParam>::Random(3 * i, bags, width, table_rows, i % kWideRanges, random);
    const auto want = reference::ReproducibleGrad(combiner, c.data.values.data(), width, c.segment_ids, c.indices);
    std::vector<double> sizes(static_cast<size_t>(bags));
    for (const int64_t bag : c.indices) sizes[static_cast<size_t>(bag)] += 1;
    auto parts = c.DividedInto(1 + static_cast<size_t>(i) % 4, random);
    for (auto& part : parts) {
      for (const int64_t bag : part.indices) {
        const double size = sizes[static_cast<size_t>(bag)];
        part.factors.push_back(combiner == SegmentCombiner::kSum    ? A{1}
                               : combiner == SegmentCombiner::kMean ? static_cast<A>(1.0 / size)
                                                                    : static_cast<A>(1.0 / std::sqrt(size)));
      }
    }
    ForEachSetting([&](const Context& ctx) {
      const auto got = SumOfParts(SegmentCombiner::kSum, c.data, parts, table_rows, ctx);
      ASSERT_THAT(got, IsOk());
      for (size_t u = 0; u < want.unique.size(); ++u) {
        const auto begin = static_cast<int64_t>(u) * width;
        const Array<TypeParam> row({want.values.begin() + begin, want.values.begin() + begin + width}, Shape{width});
        const TensorView mine = TensorView::Of(got->template As<TypeParam>() + want.unique[u] * width, Shape{width});
        ASSERT_TRUE(HoldsBits(mine, row)) << "case " << i << ", row " << want.unique[u];
      }
    });
  }
}

TYPED_TEST(SplitSumsTest, EveryAllocationFailureIsReported) {
  std::mt19937 random(4);
  const auto c = Case<TypeParam>::Random(20'000, 300, 3, 2, 0, random);
  const auto parts = c.DividedInto(2, random);
  ForEachSetting([&](const Context& ctx) {
    ExpectEveryAllocationFailureIsReported(ctx, [&](const Context& failing) {
      return SumOfParts(SegmentCombiner::kMean, c.data, parts, 2, failing).status();
    });
  });
}

TEST(SplitSums, TakeEmptyOperands) {
  const Array<float> data({}, Shape{0, 3}), largest({0, 0});
  const Array<int32_t> none({});
  const Array<int64_t> counts({0, 5});
  const auto found = LargestSplitTerms({data, none, none}, 2);
  ASSERT_THAT(found, IsOk());
  EXPECT_TRUE(HoldsBits(found->view(), largest));
  const auto sums = SumSplitTerms({data, none, none}, largest, counts);
  ASSERT_THAT(sums, IsOk());
  EXPECT_TRUE(HoldsBits(sums->view(), Array<double>(std::vector<double>(6), Shape{2, 3})));
  const auto rows = RoundSplitSums(SegmentCombiner::kMean, DType::kFloat32, sums->view(), largest, counts);
  ASSERT_THAT(rows, IsOk());
  EXPECT_TRUE(HoldsBits(rows->view(), Array<float>(std::vector<float>(6), Shape{2, 3})));
}

TEST(SplitSums, RefuseRowsThatNoMemoryHolds) {
  const Array<double> largest({0});
  const Array<int64_t> counts({0});
  const Array<int32_t> none({});
  for (const Shape& shape : {Shape{0, int64_t{1} << 62}, Shape{0, INT64_MAX}, Shape{0, INT64_MAX, 2}}) {
    const Array<double> data({}, shape);  // float64 has two sums for each column
    EXPECT_THAT(SumSplitTerms({data, none, none}, largest, counts),
                StatusIs(Code::kResourceExhausted, HasSubstr("OOM")));
  }
}

TEST(SplitSums, NameTheFault) {
  const auto invalid = [](const char* text) { return StatusIs(Code::kInvalidArgument, HasSubstr(text)); };
  const Array<float> data({1, 2, 3, 4}, Shape{2, 2}), largest({4, 4}), one({4}), infinite({4, HUGE_VALF}),
      below({-1, 4});
  const Array<double> doubles({4, 4}), sums({1, 2, 3, 4}, Shape{2, 2}), flat({1, 2, 3, 4});
  const Array<int32_t> ids({0, 1, 1}), segments({0, 0, 1}), drops({0, 1, 0}), bad({0, 2, 0});
  const Array<int64_t> counts({2, 1}), few({1, 1}), negative({2, -1}), huge({2, int64_t{1} << 48});
  const SplitTerms terms{data, ids, segments};
  EXPECT_THAT(LargestSplitTerms({data, bad, segments}, 2), invalid("LargestSplitTerms: Bad: indices[1] == 2"));
  EXPECT_THAT(LargestSplitTerms({data, ids, drops}, 2), invalid("segment ids are not increasing"));
  EXPECT_THAT(LargestSplitTerms(terms, 1), invalid("out of range [0, 1)"));
  EXPECT_THAT(LargestSplitTerms(terms, -1), invalid("[num_segments: expected 0 to 2147483647, got -1]"));
  EXPECT_THAT(LargestSplitTerms({data, ids, segments, largest.view()}, 2),
              invalid("[factors: expected float32 of shape [3], got float32 of shape [2]]"));
  EXPECT_THAT(SumSplitTerms(terms, one, counts), invalid("[largest: expected float32 of shape [2]"));
  EXPECT_THAT(SumSplitTerms(terms, doubles, counts), invalid("[largest: expected float32 of shape [2], got float64"));
  EXPECT_THAT(SumSplitTerms(terms, largest, few), invalid("[counts[0]: expected at least 2, got 1]"));
  EXPECT_THAT(SumSplitTerms(terms, largest, negative), invalid("[counts[1]: expected 0 to"));
  EXPECT_THAT(SumSplitTerms(terms, largest, huge), invalid("[counts[1]: expected 0 to"));
  EXPECT_THAT(SumSplitTerms(terms, infinite, counts), invalid("[largest[1]: expected a finite number"));
  EXPECT_THAT(SumSplitTerms(terms, below, counts), invalid("[largest[0]: expected a finite number"));
  const auto round = [&](DType dtype, const TensorView& s, const TensorView& l) {
    return RoundSplitSums(SegmentCombiner::kSum, dtype, s, l, counts);
  };
  EXPECT_THAT(round(DType::kInt32, sums, largest), invalid("dtype"));
  EXPECT_THAT(round(DType::kFloat32, data, largest), invalid("sums"));
  EXPECT_THAT(round(DType::kFloat32, flat, largest), invalid("[sums: expected 2 dimensions"));
  EXPECT_THAT(round(DType::kFloat64, sums, largest), invalid("[largest: expected float64"));
}

}  // namespace
}  // namespace raggrad
