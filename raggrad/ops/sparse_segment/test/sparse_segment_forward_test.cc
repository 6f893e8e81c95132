#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <span>

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
#include "raggrad/testing/random_tensor.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::sparse_segment::Ids;
using ::raggrad::sparse_segment::IndexTypePair;
using ::raggrad::sparse_segment::IndexTypePairs;
using ::raggrad::testing::Array;
using ::raggrad::testing::CountingAllocator;
using ::raggrad::testing::Difference;
using ::raggrad::testing::EachDType;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::Generator;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::HostileTensor;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::kCombiners;
using ::raggrad::testing::NameOfDType;
using ::raggrad::testing::RandomTensor;
using ::raggrad::testing::TensorOf;
namespace reference = sparse_segment::reference;

struct Case {
  Tensor data;
  Ids indices{{}};
  Ids segment_ids{{}};

  // Segment s has lengths[s] ids; 0 skips it.
  static Case Random(DType dtype, uint64_t seed, const std::vector<int64_t>& lengths, int64_t rows,
                     const Shape& inner) {
    Generator random(seed);
    Case c;
    c.data = HostileTensor(random, dtype, Shape::WithDim0(rows, inner.dims()));
    c.segment_ids = Generator::RowIds<int64_t>(lengths);
    c.indices = random.UniformIds<int64_t>(std::ssize(c.segment_ids.wide), rows);
    return c;
  }

  int64_t last_segment() const { return segment_ids.wide.empty() ? -1 : segment_ids.wide.back(); }

  Result<Tensor> Run(SegmentCombiner combiner, const Context& ctx, DType index = DType::kInt32,
                     DType segment = DType::kInt32) const {
    return SparseSegment(combiner, data.view(), indices.As(index), segment_ids.As(segment), ctx);
  }
  Tensor Want(SegmentCombiner combiner, int64_t rows) const {
    const Shape& shape = data.shape();
    return *Visit(sparse_segment::SumTypes{}, data.dtype(), [&]<class T>() -> Result<Tensor> {
      const auto values = reference::Forward(combiner, data.As<T>(), shape[0], *Shape::Product(shape.tail()),
                                             indices.wide, segment_ids.wide, rows);
      return TensorOf(values.value(), Shape::WithDim0(rows, shape.tail()));
    });
  }

  // Compares both operators with the reference, for all combiners, index types, thread counts and instruction sets. The
  // second has `more` rows behind the last segment.
  void ExpectExact(int64_t more = 3) const {
    for (const SegmentCombiner combiner : kCombiners) {
      if (!Contains(FloatTypes{}, data.dtype()) && combiner != SegmentCombiner::kSum) continue;
      const int64_t num_segments = last_segment() + 1 + more;
      const Tensor want = Want(combiner, last_segment() + 1);
      const Tensor want_more = Want(combiner, num_segments);
      for (const IndexTypePair types : IndexTypePairs(indices)) {
        SCOPED_TRACE("combiner " + std::to_string(static_cast<int>(combiner)) + ", " +
                     std::string(DTypeName(types.index)) + " indices, " + std::string(DTypeName(types.segment)) +
                     " segment_ids");
        ForEachSetting([&](const Context& ctx) {
          const auto got = Run(combiner, ctx, types.index, types.segment);
          ASSERT_THAT(got, IsOk());
          EXPECT_EQ(Difference(got->view(), want.view()), "");
          const auto got_more =
              SparseSegmentWithNumSegments(combiner, data.view(), indices.As(types.index),
                                           segment_ids.As(types.segment), TensorView::Scalar(num_segments), ctx);
          ASSERT_THAT(got_more, IsOk());
          EXPECT_EQ(Difference(got_more->view(), want_more.view()), "");
        });
      }
    }
  }
};

class SparseSegmentTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Each, SparseSegmentTest, EachDType(sparse_segment::SumTypes{}), NameOfDType);

TEST_P(SparseSegmentTest, MatchesTheReferenceForEveryShape) {
  uint64_t seed = 0;
  for (const Shape& inner : {Shape{}, Shape{1}, Shape{3}, Shape{2, 5}, Shape{16}, Shape{0}, Shape{2, 0}, Shape{63},
                             Shape{127}, Shape{128}, Shape{129}, Shape{3, 100}}) {
    for (const int64_t segments : {1, 2, 9, 30}) {
      SCOPED_TRACE(std::to_string(segments) + " segments, inner rank " + std::to_string(inner.rank()));
      const std::vector<int64_t> lengths = Generator(++seed).RowLengths(segments, 5);
      Case::Random(GetParam(), seed, lengths, 11, inner).ExpectExact();
    }
  }
}

TEST_P(SparseSegmentTest, MatchesTheReferenceForEveryLength) {
  std::vector<int64_t> lengths(42);
  std::iota(lengths.begin(), lengths.end(), 0);
  for (const int64_t width : {1, 7, 131}) Case::Random(GetParam(), 1, lengths, 50, Shape{width}).ExpectExact();
}

TEST_P(SparseSegmentTest, MatchesTheReferenceWhenTheWorkIsSplit) {
  Case::Random(GetParam(), 2, Generator(2).RowLengths(5'000, 14), 3'000, Shape{9}).ExpectExact();
  Case::Random(GetParam(), 3, std::vector<int64_t>(90'000, 1), 3'000, Shape{9}).ExpectExact();
}

TEST_P(SparseSegmentTest, SplitsAHugeSegmentByColumns) {
  std::vector<int64_t> lengths = Generator(4).RowLengths(200, 20);
  lengths[100] = 20'000;
  Case::Random(GetParam(), 4, lengths, 500, Shape{100}).ExpectExact();
  Case::Random(GetParam(), 5, {0, 9'001}, 500, Shape{165}).ExpectExact(0);
}

TEST_P(SparseSegmentTest, ZeroesLongGaps) {
  std::vector<int64_t> lengths(100'000, 0);
  for (const size_t segment : {70U, 50'000U, 50'001U, 99'998U}) lengths[segment] = 3;
  Case::Random(GetParam(), 6, lengths, 10, Shape{4}).ExpectExact(70'000);
}

TEST_P(SparseSegmentTest, NothingToPool) {
  Case::Random(GetParam(), 7, {}, 4, Shape{3}).ExpectExact(0);
  Case::Random(GetParam(), 7, {}, 4, Shape{3}).ExpectExact(5);
  Case::Random(GetParam(), 7, {}, 0, Shape{3}).ExpectExact(5);
}

// Compares all bits, also the payload of a NaN, which HoldsBits ignores.
TEST_P(SparseSegmentTest, CopiesTheBitsOfASegmentOfOneRow) {
  const auto c = Case::Random(GetParam(), 8, std::vector<int64_t>(300, 1), 300, Shape{5});
  const size_t row_bytes = 5 * DTypeSize(GetParam());
  ForEachSetting([&](const Context& ctx) {
    const auto got = c.Run(SegmentCombiner::kSum, ctx);
    ASSERT_THAT(got, IsOk());
    for (size_t s = 0; s < 300; ++s) {
      const char* const want = c.data.As<char>() + static_cast<size_t>(c.indices.wide[s]) * row_bytes;
      ASSERT_EQ(std::memcmp(got->As<char>() + s * row_bytes, want, row_bytes), 0) << "row " << s;
    }
  });
}

TEST_P(SparseSegmentTest, EveryAllocationFailureIsReported) {
  const auto c = Case::Random(GetParam(), 9, Generator(9).RowLengths(3'000, 14), 100, Shape{4});
  ForEachSetting([&](const Context& ctx) {
    ExpectEveryAllocationFailureIsReported(
        ctx, [&](const Context& failing) { return c.Run(SegmentCombiner::kSum, failing).status(); });
  });
}

TEST_P(SparseSegmentTest, NeedsNoMemoryBeyondTheOutput) {
  const auto c = Case::Random(GetParam(), 10, Generator(10).RowLengths(5'000, 14), 100, Shape{4});
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
  const auto c = Case::Random(DType::kFloat32, 11, {1'000, 70}, 50, Shape{3});
  Context fast;
  fast.accumulation = Accumulation::kFast;
  const auto got = c.Run(SegmentCombiner::kMean, fast);
  ASSERT_THAT(got, IsOk());
  EXPECT_EQ(Difference(got->view(), c.Want(SegmentCombiner::kMean, 2).view()), "");
}

// Compares both gradients of f(data) = sum of weight * forward(data) with differences of f. f is linear in data, so a
// large step has no truncation error.
void ExpectGradientsMatchDifferences(SegmentCombiner combiner, bool with_num_segments, uint64_t seed) {
  SCOPED_TRACE("combiner " + std::to_string(static_cast<int>(combiner)) + ", seed " + std::to_string(seed));
  Generator random(seed);
  const auto rows = static_cast<int32_t>(1 + random.Below(9));
  const Shape inner = seed % 2 == 0 ? Shape{1 + random.Below(4)} : Shape{2, 1 + random.Below(3)};
  const std::vector<int64_t> lengths = random.RowLengths(1 + random.Below(8), 4);
  auto c = Case::Random(DType::kFloat64, seed, lengths, rows, inner);
  c.data = RandomTensor(random, DType::kFloat64, c.data.shape());
  const auto num_segments = static_cast<int32_t>(lengths.size());
  const TensorView indices = c.indices.As(DType::kInt32);
  const TensorView segment_ids = c.segment_ids.As(DType::kInt64);
  const auto forward = [&] {
    return with_num_segments ? SparseSegmentWithNumSegments(combiner, c.data.view(), indices, segment_ids,
                                                            TensorView::Scalar(num_segments))
                             : SparseSegment(combiner, c.data.view(), indices, segment_ids);
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
  const std::span data(c.data.As<double>(), static_cast<size_t>(*c.data.shape().NumElements()));
  std::vector<double> scattered(data.size(), 0.0);
  for (int64_t u = 0; u < sparse->output.shape()[0]; ++u) {
    const auto row = static_cast<size_t>(sparse->sorted_unique_indices.As<int32_t>()[u]);
    std::copy_n(sparse->output.As<double>() + static_cast<size_t>(u) * width, width, &scattered[row * width]);
  }
  for (size_t i = 0; i < data.size(); ++i) {
    const double saved = data[i];
    data[i] = saved + 0.5;
    const double above = f();
    data[i] = saved - 0.5;
    const double below = f();
    data[i] = saved;
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
