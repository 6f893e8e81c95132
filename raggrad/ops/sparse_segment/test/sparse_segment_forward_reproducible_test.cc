// Accumulation::kReproducible in the forwards: the bits of the definition, for every order of a segment's ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "raggrad/ops/sparse_segment/exact_lanes.h"
#include "raggrad/ops/sparse_segment/segment_plan.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"
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
using ::raggrad::sparse_segment::RandomIds;
using ::raggrad::testing::Array;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::kCombiners;
using ::raggrad::testing::kWideRanges;
using ::raggrad::testing::Reproducible;
using ::raggrad::testing::WideValues;
namespace reference = sparse_segment::reference;

template <class V>
struct Case {
  Array<V> data{{}};
  Ids indices{{}};
  Ids segment_ids{{}};
  int64_t segments = 0;

  static Case Random(int64_t n, int64_t rows, int64_t width, int64_t segments, int range, std::mt19937& random) {
    Case c;
    c.segments = segments;
    c.data = {WideValues<V>(static_cast<size_t>(rows * width), range, random), Shape{rows, width}};
    c.indices = RandomIds(n, rows, random);
    std::vector<int64_t> segment_ids = RandomIds(n, segments, random);
    std::sort(segment_ids.begin(), segment_ids.end());
    c.segment_ids = std::move(segment_ids);
    return c;
  }

  // The ids of each segment in another order.
  Case Shuffled(std::mt19937& random) const {
    std::vector<int64_t> shuffled = indices.wide;
    for (size_t begin = 0, end = 0; begin < shuffled.size(); begin = end) {
      while (end < shuffled.size() && segment_ids.wide[end] == segment_ids.wide[begin]) ++end;
      std::shuffle(shuffled.begin() + static_cast<int64_t>(begin), shuffled.begin() + static_cast<int64_t>(end),
                   random);
    }
    Case c = *this;
    c.indices = std::move(shuffled);
    return c;
  }

  Result<Tensor> Pool(SegmentCombiner combiner, const Context& ctx, DType index = DType::kInt32) const {
    return SparseSegmentWithNumSegments(combiner, data, indices.As(index), segment_ids.As(DType::kInt32),
                                        TensorView::Scalar(segments), ctx);
  }
  Array<V> Expected(SegmentCombiner combiner) const {
    const int64_t width = data.shape[1];
    return {
        reference::ReproducibleForward(combiner, data.values.data(), width, indices.wide, segment_ids.wide, segments),
        Shape{segments, width}};
  }
  void ExpectDefinition(SegmentCombiner combiner) const {
    const Array<V> want = Expected(combiner);
    ForEachSetting([&](const Context& ctx) {
      const auto got = Pool(combiner, Reproducible(ctx), DType::kInt64);
      ASSERT_THAT(got, IsOk());
      EXPECT_TRUE(HoldsBits(got->view(), want));
    });
  }
};

template <class V>
class SparseSegmentForwardReproducibleTest : public ::testing::Test {};
TYPED_TEST_SUITE(SparseSegmentForwardReproducibleTest, GtestTypes<FloatTypes>);

TYPED_TEST(SparseSegmentForwardReproducibleTest, HasTheBitsOfTheDefinitionForEveryWidth) {
  std::mt19937 random(1);
  for (const int64_t width : {1, 2, 3, 8, 15, 16, 33, 64, 127, 256, 257, 1023}) {
    SCOPED_TRACE("width " + std::to_string(width));
    const int range = static_cast<int>(width) % kWideRanges;
    Case<TypeParam>::Random(30, 9, width, 8, range, random).ExpectDefinition(kCombiners[width % 3]);
  }
}

TYPED_TEST(SparseSegmentForwardReproducibleTest, HasTheBitsOfTheDefinitionInRandomCases) {
  std::vector<Context> settings;
  ForEachSetting([&](const Context& ctx) { settings.push_back(Reproducible(ctx)); });
  std::mt19937 random(2);
  for (int i = 0; i < 5'000; ++i) {
    const auto below = [&](int limit) { return 1 + static_cast<int>(random() % static_cast<uint32_t>(limit)); };
    const auto c = Case<TypeParam>::Random(below(24), below(6), below(10), below(4), i % kWideRanges, random);
    const SegmentCombiner combiner = kCombiners[i % 3];
    const Array<TypeParam> want = c.Expected(combiner);
    const auto got = c.Pool(combiner, settings[random() % settings.size()]);
    ASSERT_THAT(got, IsOk());
    ASSERT_TRUE(HoldsBits(got->view(), want)) << "case " << i;
    const auto shuffled = c.Shuffled(random).Pool(combiner, settings[random() % settings.size()]);
    ASSERT_THAT(shuffled, IsOk());
    ASSERT_TRUE(HoldsBits(shuffled->view(), want)) << "case " << i << ", shuffled";
  }
}

// Numbers that lie on the grid already are not rounded to it.
TYPED_TEST(SparseSegmentForwardReproducibleTest, RoundsWhatDoesNotLieOnTheGrid) {
  for (const int64_t rows : {1, 2, 3, 4, 7, 40}) {
    for (const int64_t width : {2, 5, 70, 300}) {
      for (int depth = 0; depth < 60; ++depth) {
        SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(width) + ", depth " + std::to_string(depth));
        Case<TypeParam> c;
        c.segments = 1;
        c.data = {reference::RowsBelowOne<TypeParam>(rows, width, depth), Shape{rows, width}};
        std::vector<int64_t> indices(static_cast<size_t>(rows));
        std::iota(indices.begin(), indices.end(), int64_t{0});
        c.indices = indices;
        c.segment_ids = std::vector<int64_t>(static_cast<size_t>(rows), 0);
        c.ExpectDefinition(kCombiners[depth % 3]);
      }
    }
  }
}

// Means of segments of every length are rounded as by a division, and so are means of numbers without a finite sum.
TYPED_TEST(SparseSegmentForwardReproducibleTest, DividesByEveryCount) {
  std::mt19937 random(6);
  for (int64_t n = 1; n < 300; ++n) {
    SCOPED_TRACE(std::to_string(n) + " ids");
    Case<TypeParam>::Random(n, 5, 37, 1, n % 4 == 0 ? 4 : 0, random).ExpectDefinition(kCombiners[n % 3]);
  }
}

TYPED_TEST(SparseSegmentForwardReproducibleTest, SplitsALongSegment) {
  std::mt19937 random(3);
  for (const int64_t width : {1, 100}) {
    Case<TypeParam>::Random(100'000 / width, 300, width, 1, 0, random).ExpectDefinition(SegmentCombiner::kMean);
    Case<TypeParam>::Random(100'000 / width, 300, width, 4, 1, random).ExpectDefinition(SegmentCombiner::kSqrtN);
  }
}

TYPED_TEST(SparseSegmentForwardReproducibleTest, HasTheSameBitsInEveryOrderOfTheIds) {
  std::mt19937 random(4);
  const auto c = Case<TypeParam>::Random(40'000, 3'000, 19, 300, 0, random);
  const Case<TypeParam> shuffled = c.Shuffled(random);
  const auto plan = SegmentPlan::Make(shuffled.indices.As(DType::kInt32), shuffled.segment_ids.As(DType::kInt32),
                                      {.table_rows = 3'000, .num_segments = 300});
  ASSERT_THAT(plan, IsOk());
  for (const SegmentCombiner combiner : kCombiners) {
    const auto want = c.Pool(combiner, Reproducible());
    ASSERT_THAT(want, IsOk());
    ForEachSetting([&](const Context& ctx) {
      const auto got = shuffled.Pool(combiner, Reproducible(ctx));
      ASSERT_THAT(got, IsOk());
      EXPECT_TRUE(HoldsBits(got->view(), want->view()));
      const auto planned = SparseSegment(combiner, shuffled.data, *plan, Reproducible(ctx));
      ASSERT_THAT(planned, IsOk());
      EXPECT_TRUE(HoldsBits(planned->view(), want->view()));
    });
    if constexpr (!kIsShortFloat<TypeParam>) {  // the last rounding to 16 bits hides most differences
      EXPECT_FALSE(HoldsBits(shuffled.Pool(combiner, {})->view(), c.Pool(combiner, {})->view()));
    }
  }
}

TYPED_TEST(SparseSegmentForwardReproducibleTest, EveryAllocationFailureIsReported) {
  std::mt19937 random(5);
  const auto c = Case<TypeParam>::Random(40'000, 300, 3, 2, 0, random);
  ForEachSetting([&](const Context& ctx) {
    ExpectEveryAllocationFailureIsReported(
        Reproducible(ctx), [&](const Context& failing) { return c.Pool(SegmentCombiner::kMean, failing).status(); });
  });
}

// The last bit of a quotient seldom shows in a float, so this looks at the doubles. On the level that all machines
// have.
TEST(SparseSegmentForwardReproducible, QuotientsAreThoseOfADivision) {
  using Division = sparse_segment::Division<kBaselineIsa>;
  std::mt19937_64 random(7);
  const auto number = [&](int exponents) {
    const double fraction = 1 + static_cast<double>(random() >> 12) * 0x1p-52;
    return std::ldexp(random() % 2 == 0 ? fraction : -fraction,
                      static_cast<int>(random() % 256) * exponents / 256 - 126);
  };
  for (int i = 0; i < 1'000'000; ++i) {
    const double divisor = i % 2 == 0 ? 1 + static_cast<double>(random() % 100'000) : number(250);
    const double x = i % 3 == 0 ? static_cast<float>(number(250)) : number(250);
    const Division::V quotient = Division(divisor)(Division::V{} + x);
    ASSERT_EQ(std::bit_cast<uint64_t>(quotient[0]), std::bit_cast<uint64_t>(x / divisor)) << x << " / " << divisor;
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double divisor : {3.0, -7.5, 0x1p-300, 0x1p300, 0x1p-1060, kInfinity}) {
    for (const double x : {0.0, 1.0, -0x1p-149, 0x1p127, kInfinity, -kInfinity}) {
      const Division::V quotient = Division(divisor)(Division::V{} + x);
      if (std::isinf(x) && std::isinf(divisor)) {
        EXPECT_TRUE(std::isnan(quotient[0]));
      } else {
        EXPECT_EQ(quotient[0], x / divisor) << x << " / " << divisor;
      }
    }
  }
}

TEST(SparseSegmentForwardReproducible, IntegersHaveTheirOneSum) {
  const Array<int32_t> data({INT32_MAX, 1, 5}, Shape{3, 1});
  const Array<int32_t> ids({0, 1, 2}), segments({0, 0, 1});
  const auto sums = SparseSegment(SegmentCombiner::kSum, data, ids, segments, Reproducible());
  ASSERT_THAT(sums, IsOk());
  EXPECT_TRUE(HoldsBits(sums->view(), Array<int32_t>({INT32_MIN, 5}, Shape{2, 1})));
}

}  // namespace
}  // namespace raggrad
