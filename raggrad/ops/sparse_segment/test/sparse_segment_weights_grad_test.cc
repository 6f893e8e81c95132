// The gradient of the weights, and finite differences of everything that has weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "raggrad/ops/sparse_segment/segment_plan.h"
#include "raggrad/ops/sparse_segment/test/weighted_case.h"
#include "raggrad/ops/sparse_segment/test/weighted_reference.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::sparse_segment::IndexTypePair;
using ::raggrad::sparse_segment::IndexTypePairs;
using ::raggrad::sparse_segment::Weighted;
using ::raggrad::sparse_segment::WeightedCase;
using ::raggrad::sparse_segment::WeightedTypes;
using ::raggrad::testing::Array;
using ::raggrad::testing::CountingAllocator;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::Generator;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::StatusIs;
using ::testing::HasSubstr;
namespace reference = sparse_segment::reference;

template <class Types>
void ExpectExact(const WeightedCase<Types>& c) {
  c.ForEachPooling([&](const SegmentPooling& pooling) {
    const Array<typename Types::Weight> want{reference::WeightsGrad(pooling, c.weights.values, c.grad.values.data(),
                                                                    c.data.values.data(), c.width, c.indices.wide,
                                                                    c.segment_ids.wide)};
    for (const IndexTypePair types : IndexTypePairs(c.indices)) {
      const TensorView indices = c.indices.As(types.index), segment_ids = c.segment_ids.As(types.segment);
      ForEachSetting([&](const Context& ctx) {
        const auto got = SparseSegmentWeightsGrad(pooling, c.grad, c.data, indices, segment_ids, ctx);
        ASSERT_THAT(got, IsOk());
        EXPECT_TRUE(HoldsBits(got->view(), want));
      });
    }
    const auto plan =
        SegmentPlan::Make(c.indices.As(DType::kInt32), c.segment_ids.As(DType::kInt32), {c.table_rows, c.num_segments});
    ASSERT_THAT(plan, IsOk());
    EXPECT_TRUE(HoldsBits(SparseSegmentWeightsGrad(pooling, c.grad, c.data, *plan)->view(), want));
  });
}

template <class Types>
class SparseSegmentWeightsGradTest : public ::testing::Test {
 public:
  using Case = WeightedCase<Types>;
};
TYPED_TEST_SUITE(SparseSegmentWeightsGradTest, WeightedTypes);

TYPED_TEST(SparseSegmentWeightsGradTest, MatchesTheReference) {
  uint64_t seed = 0;
  for (const int64_t width : {1, 3, 15, 16, 17, 33, 131}) {
    ExpectExact(TestFixture::Case::Random(++seed, {3, 0, 1, 16, 2}, 11, width));
    ExpectExact(TestFixture::Case::Random(++seed, {3, 0, 1, 16, 2}, 11, width, /*hostile=*/false));
  }
  ExpectExact(TestFixture::Case::Random(++seed, {0, 0}, 4, 3));
}

TYPED_TEST(SparseSegmentWeightsGradTest, MatchesTheReferenceWhenTheWorkIsSplit) {
  std::vector<int64_t> lengths = Generator(1).RowLengths(2'000, 9);
  lengths[100] = 40'000;
  ExpectExact(TestFixture::Case::Random(1, lengths, 3'000, 5, /*hostile=*/false));
}

TYPED_TEST(SparseSegmentWeightsGradTest, EveryAllocationFailureIsReported) {
  const auto c = TestFixture::Case::Random(2, {5, 6}, 50, 3);
  const SegmentPooling pooling = c.Pooling(SegmentCombiner::kMean, WeightDivisor::kWeights);
  ExpectEveryAllocationFailureIsReported({}, [&](const Context& failing) {
    return SparseSegmentWeightsGrad(pooling, c.grad, c.data, c.indices.As(DType::kInt32),
                                    c.segment_ids.As(DType::kInt32), failing)
        .status();
  });
}

TYPED_TEST(SparseSegmentWeightsGradTest, NeedsNoMemoryForRows) {
  using A = SumType<typename TypeParam::Value>;
  const auto c = TestFixture::Case::Random(3, Generator(3).RowLengths(200, 9), 50, 64);
  const size_t copies = std::is_same_v<typename TypeParam::Weight, A> ? 0 : 2 * sizeof(A);
  CountingAllocator allocator;
  Context counting;
  counting.allocator = &allocator;
  const auto got = SparseSegmentWeightsGrad(c.Pooling(SegmentCombiner::kSqrtN, WeightDivisor::kWeights), c.grad, c.data,
                                            c.indices.As(DType::kInt32), c.segment_ids.As(DType::kInt32), counting);
  ASSERT_THAT(got, IsOk());
  EXPECT_EQ(allocator.peak_bytes(), got->bytes() + copies * c.indices.wide.size());
}

// Compares with differences of f = sum of grad * forward, for every element of `values`.
void ExpectSlopes(std::vector<double>& values, const double* gradient, const std::function<double()>& f) {
  constexpr double kStep = 1e-4;
  for (size_t i = 0; i < values.size(); ++i) {
    const double saved = values[i];
    values[i] = saved + kStep;
    const double above = f();
    values[i] = saved - kStep;
    const double below = f();
    values[i] = saved;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-5) << "element " << i;
  }
}

TEST(SparseSegmentWeightsGrad, GradientsMatchFiniteDifferences) {
  auto c = WeightedCase<Weighted<double, double>>::Random(4, {3, 0, 1, 18, 2}, 7, 3, /*hostile=*/false);
  for (double& w : c.weights.values) w = 0.5 + std::abs(w);
  const TensorView indices = c.indices.As(DType::kInt32), segment_ids = c.segment_ids.As(DType::kInt64);
  c.ForEachPooling([&](const SegmentPooling& pooling) {
    const auto f = [&] {
      const auto out = SparseSegment(pooling, c.data, indices, segment_ids);
      return std::inner_product(c.grad.values.begin(), c.grad.values.end(), out->As<double>(), 0.0);
    };
    const auto of_data = SparseSegmentGrad(pooling, c.grad, indices, segment_ids, TensorView::Scalar(c.table_rows));
    const auto of_weights = SparseSegmentWeightsGrad(pooling, c.grad, c.data, indices, segment_ids);
    ASSERT_THAT(of_data, IsOk());
    ASSERT_THAT(of_weights, IsOk());
    ExpectSlopes(c.data.values, of_data->As<double>(), f);
    ExpectSlopes(c.weights.values, of_weights->As<double>(), f);
  });
}

TEST(SparseSegmentWeightsGrad, BadOperandsAreRefused) {
  const Array<float> data{{1, 2}, Shape{2, 1}}, grad{{3}, Shape{1, 1}}, wide{{1, 2, 3, 4}, Shape{2, 2}};
  const Array<double> doubles{{1, 2}, Shape{2, 1}};
  const Array<int32_t> indices{{0, 1}}, segment_ids{{0, 0}}, one{{0}}, outside{{0, 2}}, descending{{1, 0}};
  const Array<float> weights{{1, 2}}, short_weights{{1}};
  const auto run = [&](const TensorView& g, const TensorView& d, const TensorView& i, const TensorView& s,
                       const TensorView& w) {
    return SparseSegmentWeightsGrad({SegmentCombiner::kMean, {w}}, g, d, i, s).status();
  };
  const auto invalid = [](const char* text) { return StatusIs(Code::kInvalidArgument, HasSubstr(text)); };
  EXPECT_THAT(run(grad, data, indices, segment_ids, weights), IsOk());
  EXPECT_THAT(run(grad, data, indices, one, weights), invalid("segment_ids and indices should have same size"));
  EXPECT_THAT(run(grad, doubles, indices, segment_ids, weights),
              invalid("SparseSegmentMeanWeightsGrad: data and grad have different types [data: expected float32, got "
                      "float64]"));
  EXPECT_THAT(run(grad, wide, indices, segment_ids, weights), invalid("rows of data and grad have different shapes"));
  EXPECT_THAT(run(grad, data, indices, segment_ids, short_weights),
              invalid("weights: expected shape [2], got shape [1]"));
  EXPECT_THAT(run(grad, data, outside, segment_ids, weights), invalid("Bad: indices[1] == 2 out of range [0, 2)"));
  EXPECT_THAT(run(data, data, indices, descending, weights), invalid("segment ids are not increasing"));
  EXPECT_THAT(run(grad, data, indices, outside, weights), invalid("segment ids must be < num_segments"));
  EXPECT_THAT(SparseSegmentWeightsGrad(SegmentCombiner::kSum, grad, data, indices, segment_ids),
              invalid("SparseSegmentSumWeightsGrad: there are no weights"));
  const auto plan = SegmentPlan::Make(indices, descending, {2, 2});
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(SparseSegmentWeightsGrad({SegmentCombiner::kSum, {weights}}, data, data, *plan),
              invalid("SparseSegmentSumWeightsGrad with a plan: segment ids are not increasing"));
}

}  // namespace
}  // namespace raggrad
