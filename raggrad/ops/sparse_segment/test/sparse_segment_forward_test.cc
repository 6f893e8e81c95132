#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"
#include "raggrad/ops/sparse_segment/test/reference.h"
#include "raggrad/ops/sparse_segment/test/test_ids.h"
#include "raggrad/tensorflow_names.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/combiners.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::sparse_segment::Ids;
using ::raggrad::sparse_segment::IndexTypePair;
using ::raggrad::sparse_segment::IndexTypePairs;
using ::raggrad::testing::Array;
using ::raggrad::testing::CountingAllocator;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::Generator;
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::kCombiners;
namespace reference = sparse_segment::reference;

template <class V>
struct Case {
  Array<V> data{{}};
  Ids indices{{}};
  Ids segment_ids{{}};

  // Segment s has lengths[s] ids; 0 skips it.
  static Case Random(uint64_t seed, const std::vector<int64_t>& lengths, int64_t rows, const Shape& inner) {
    Generator random(seed);
    const Shape shape = Shape::WithDim0(rows, inner.dims());
    Case c;
    c.data = {random.HostileValues<V>(*shape.NumElements()), shape};
    c.segment_ids = Generator::RowIds<int64_t>(lengths);
    c.indices = random.UniformIds<int64_t>(std::ssize(c.segment_ids.wide), rows);
    return c;
  }

  int64_t last_segment() const { return segment_ids.wide.empty() ? -1 : segment_ids.wide.back(); }

  Result<Tensor> Run(SegmentCombiner combiner, const Context& ctx, DType index = DType::kInt32,
                     DType segment = DType::kInt32) const {
    return SparseSegment(combiner, data, indices.As(index), segment_ids.As(segment), ctx);
  }
  Array<V> Want(SegmentCombiner combiner, int64_t rows) const {
    const int64_t width = *Shape::Product(data.shape.tail());
    const auto values =
        reference::Forward(combiner, data.values.data(), data.shape[0], width, indices.wide, segment_ids.wide, rows);
    return {values.value(), Shape::WithDim0(rows, data.shape.tail())};
  }

  // Compares both operators with the reference, for all combiners, index types, thread counts and instruction sets. The
  // second has `more` rows behind the last segment.
  void ExpectExact(int64_t more = 3) const {
    for (const SegmentCombiner combiner : kCombiners) {
      if (std::is_integral_v<V> && combiner != SegmentCombiner::kSum) continue;
      const int64_t num_segments = last_segment() + 1 + more;
      const Array<V> want = Want(combiner, last_segment() + 1);
      const Array<V> want_more = Want(combiner, num_segments);
      for (const IndexTypePair types : IndexTypePairs(indices)) {
        SCOPED_TRACE("combiner " + std::to_string(static_cast<int>(combiner)) + ", " +
                     std::string(DTypeName(types.index)) + " indices, " + std::string(DTypeName(types.segment)) +
                     " segment_ids");
        ForEachSetting([&](const Context& ctx) {
          const auto got = Run(combiner, ctx, types.index, types.segment);
          ASSERT_THAT(got, IsOk());
          EXPECT_TRUE(HoldsBits(got->view(), want));
          const auto got_more =
              SparseSegmentWithNumSegments(combiner, data, indices.As(types.index), segment_ids.As(types.segment),
                                           TensorView::Scalar(num_segments), ctx);
          ASSERT_THAT(got_more, IsOk());
          EXPECT_TRUE(HoldsBits(got_more->view(), want_more));
        });
      }
    }
  }
};

template <class V>
class SparseSegmentTest : public ::testing::Test {};
TYPED_TEST_SUITE(SparseSegmentTest, GtestTypes<sparse_segment::SumTypes>);

TYPED_TEST(SparseSegmentTest, MatchesTheReferenceForEveryShape) {
  uint64_t seed = 0;
  for (const Shape& inner : {Shape{}, Shape{1}, Shape{3}, Shape{2, 5}, Shape{16}, Shape{0}, Shape{2, 0}, Shape{63},
                             Shape{127}, Shape{128}, Shape{129}, Shape{3, 100}}) {
    for (const int64_t segments : {1, 2, 9, 30}) {
      SCOPED_TRACE(std::to_string(segments) + " segments, inner rank " + std::to_string(inner.rank()));
      const std::vector<int64_t> lengths = Generator(++seed).RowLengths(segments, 5);
      Case<TypeParam>::Random(seed, lengths, 11, inner).ExpectExact();
    }
  }
}

TYPED_TEST(SparseSegmentTest, MatchesTheReferenceForEveryLength) {
  std::vector<int64_t> lengths(42);
  std::iota(lengths.begin(), lengths.end(), 0);
  for (const int64_t width : {1, 7, 131}) Case<TypeParam>::Random(1, lengths, 50, Shape{width}).ExpectExact();
}

TYPED_TEST(SparseSegmentTest, MatchesTheReferenceWhenTheWorkIsSplit) {
  Case<TypeParam>::Random(2, Generator(2).RowLengths(5'000, 14), 3'000, Shape{9}).ExpectExact();
  Case<TypeParam>::Random(3, std::vector<int64_t>(90'000, 1), 3'000, Shape{9}).ExpectExact();
}

TYPED_TEST(SparseSegmentTest, SplitsAHugeSegmentByColumns) {
  std::vector<int64_t> lengths = Generator(4).RowLengths(200, 20);
  lengths[100] = 20'000;
  Case<TypeParam>::Random(4, lengths, 500, Shape{100}).ExpectExact();
  Case<TypeParam>::Random(5, {0, 9'001}, 500, Shape{165}).ExpectExact(0);
}

TYPED_TEST(SparseSegmentTest, ZeroesLongGaps) {
  std::vector<int64_t> lengths(100'000, 0);
  for (const size_t segment : {70U, 50'000U, 50'001U, 99'998U}) lengths[segment] = 3;
  Case<TypeParam>::Random(6, lengths, 10, Shape{4}).ExpectExact(70'000);
}

TYPED_TEST(SparseSegmentTest, NothingToPool) {
  Case<TypeParam>::Random(7, {}, 4, Shape{3}).ExpectExact(0);
  Case<TypeParam>::Random(7, {}, 4, Shape{3}).ExpectExact(5);
  Case<TypeParam>::Random(7, {}, 0, Shape{3}).ExpectExact(5);
}

// Compares all bits, also the payload of a NaN, which HoldsBits ignores.
TYPED_TEST(SparseSegmentTest, CopiesTheBitsOfASegmentOfOneRow) {
  const auto c = Case<TypeParam>::Random(8, std::vector<int64_t>(300, 1), 300, Shape{5});
  ForEachSetting([&](const Context& ctx) {
    const auto got = c.Run(SegmentCombiner::kSum, ctx);
    ASSERT_THAT(got, IsOk());
    for (size_t s = 0; s < 300; ++s) {
      const TypeParam* const want = c.data.values.data() + c.indices.wide[s] * 5;
      ASSERT_EQ(std::memcmp(got->template As<TypeParam>() + s * 5, want, 5 * sizeof(TypeParam)), 0) << "row " << s;
    }
  });
}

TYPED_TEST(SparseSegmentTest, EveryAllocationFailureIsReported) {
  const auto c = Case<TypeParam>::Random(9, Generator(9).RowLengths(3'000, 14), 100, Shape{4});
  ForEachSetting([&](const Context& ctx) {
    ExpectEveryAllocationFailureIsReported(
        ctx, [&](const Context& failing) { return c.Run(SegmentCombiner::kSum, failing).status(); });
  });
}

TYPED_TEST(SparseSegmentTest, NeedsNoMemoryBeyondTheOutput) {
  const auto c = Case<TypeParam>::Random(10, Generator(10).RowLengths(5'000, 14), 100, Shape{4});
  ForEachSetting([&](const Context& ctx) {
    CountingAllocator allocator;
    Context counting = ctx;
    counting.allocator = &allocator;
    const auto result = c.Run(SegmentCombiner::kSum, counting);
    ASSERT_THAT(result, IsOk());
    EXPECT_EQ(allocator.peak_bytes(), result->bytes());
  });
}

TEST(SparseSegmentArithmetic, MinusZeroSurvives) {
  const Array<float> data{{-0.0F, 1.0F, -0.0F}, Shape{3, 1}};
  const Array<int32_t> indices{{0, 2, 0, 0}}, segment_ids{{0, 0, 2, 3}};
  for (const SegmentCombiner combiner : kCombiners) {
    const auto got = SparseSegment(combiner, data, indices, segment_ids);
    ASSERT_THAT(got, IsOk());
    EXPECT_TRUE(HoldsBits(got->view(), Array<float>{{-0.0F, 0.0F, -0.0F, -0.0F}, Shape{4, 1}}));
  }
}

TEST(SparseSegmentArithmetic, MinusZeroSurvivesEveryGroup) {
  const Array<double> data{{-0.0}, Shape{1, 1}};
  const Array<int32_t> indices{std::vector<int32_t>(27, 0)}, segment_ids{std::vector<int32_t>(27, 0)};
  for (const SegmentCombiner combiner : kCombiners) {
    const auto got = SparseSegment(combiner, data, indices, segment_ids);
    ASSERT_THAT(got, IsOk());
    EXPECT_TRUE(HoldsBits(got->view(), data));
  }
}

TEST(SparseSegmentArithmetic, IntegersWrap) {
  const Array<int8_t> data{{127, -128}, Shape{2}};
  const auto got = SparseSegmentSum(data, Array<int32_t>{{0, 0, 1, 1, 1}}, Array<int32_t>{{0, 0, 1, 1, 1}});
  ASSERT_THAT(got, IsOk());
  EXPECT_TRUE(HoldsBits(got->view(), Array<int8_t>{{-2, -128}}));
}

TEST(SparseSegmentArithmetic, AccumulationHasNoInfluence) {
  const auto c = Case<float>::Random(11, {1'000, 70}, 50, Shape{3});
  Context fast;
  fast.accumulation = Accumulation::kFast;
  const auto got = c.Run(SegmentCombiner::kMean, fast);
  ASSERT_THAT(got, IsOk());
  EXPECT_TRUE(HoldsBits(got->view(), c.Want(SegmentCombiner::kMean, 2)));
}

// Compares both gradients of f(data) = sum of weight * forward(data) with differences of f. f is linear in data, so a
// large step has no truncation error.
void ExpectGradientsMatchDifferences(SegmentCombiner combiner, bool with_num_segments, uint64_t seed) {
  SCOPED_TRACE("combiner " + std::to_string(static_cast<int>(combiner)) + ", seed " + std::to_string(seed));
  Generator random(seed);
  const auto rows = static_cast<int32_t>(1 + random.Below(9));
  const Shape inner = seed % 2 == 0 ? Shape{1 + random.Below(4)} : Shape{2, 1 + random.Below(3)};
  const std::vector<int64_t> lengths = random.RowLengths(1 + random.Below(8), 4);
  auto c = Case<double>::Random(seed, lengths, rows, inner);
  c.data.values = random.Values<double>(static_cast<int64_t>(c.data.values.size()));
  const auto num_segments = static_cast<int32_t>(lengths.size());
  const TensorView indices = c.indices.As(DType::kInt32);
  const TensorView segment_ids = c.segment_ids.As(DType::kInt64);
  const auto forward = [&] {
    return with_num_segments
               ? SparseSegmentWithNumSegments(combiner, c.data, indices, segment_ids, TensorView::Scalar(num_segments))
               : SparseSegment(combiner, c.data, indices, segment_ids);
  };
  const auto first = forward();
  ASSERT_THAT(first, IsOk());
  const Array<double> weight{random.Values<double>(*first->shape().NumElements()), first->shape()};
  const auto f = [&] {
    const auto out = forward();
    return std::inner_product(weight.values.begin(), weight.values.end(), out->As<double>(), 0.0);
  };
  const auto dense = SparseSegmentGrad(combiner, weight, indices, segment_ids, TensorView::Scalar(rows));
  const auto sparse = SparseSegmentGradV2(combiner, weight, indices, segment_ids, TensorView::Scalar(rows));
  ASSERT_THAT(dense, IsOk());
  ASSERT_THAT(sparse, IsOk());
  const size_t width = static_cast<size_t>(*Shape::Product(inner.dims()));
  std::vector<double> scattered(c.data.values.size(), 0.0);
  for (int64_t u = 0; u < sparse->output.shape()[0]; ++u) {
    const auto row = static_cast<size_t>(sparse->sorted_unique_indices.As<int32_t>()[u]);
    std::copy_n(sparse->output.As<double>() + static_cast<size_t>(u) * width, width, &scattered[row * width]);
  }
  for (size_t i = 0; i < c.data.values.size(); ++i) {
    const double saved = c.data.values[i];
    c.data.values[i] = saved + 0.5;
    const double above = f();
    c.data.values[i] = saved - 0.5;
    const double below = f();
    c.data.values[i] = saved;
    EXPECT_NEAR(dense->As<double>()[i], above - below, 1e-12);
    EXPECT_NEAR(scattered[i], above - below, 1e-12);
  }
}

TEST(SparseSegmentPairs, GradientsMatchFiniteDifferences) {
  for (const SegmentCombiner combiner : kCombiners) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      ExpectGradientsMatchDifferences(combiner, /*with_num_segments=*/false, seed);
      ExpectGradientsMatchDifferences(combiner, /*with_num_segments=*/true, seed);
    }
  }
}

}  // namespace
}  // namespace raggrad
