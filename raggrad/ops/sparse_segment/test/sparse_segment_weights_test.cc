#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "raggrad/ops/sparse_segment/indexed_slices.h"
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
void ExpectForward(const WeightedCase<Types>& c) {
  c.ForEachPooling([&](const SegmentPooling& pooling) {
    const Array<typename Types::Value> want{
        reference::WeightedForward(pooling, c.weights.values, c.data.values.data(), c.width, c.indices.wide,
                                   c.segment_ids.wide, c.num_segments),
        Shape{c.num_segments, c.width}};
    for (const IndexTypePair types : IndexTypePairs(c.indices)) {
      const TensorView indices = c.indices.As(types.index), segment_ids = c.segment_ids.As(types.segment);
      ForEachSetting([&](const Context& ctx) {
        const auto got = SparseSegmentWithNumSegments(pooling, c.data, indices, segment_ids,
                                                      TensorView::Scalar(c.num_segments), ctx);
        ASSERT_THAT(got, IsOk());
        EXPECT_TRUE(HoldsBits(got->view(), want));
      });
    }
  });
}

template <class Types>
void ExpectGrad(const WeightedCase<Types>& c) {
  using T = typename Types::Value;
  c.ForEachPooling([&](const SegmentPooling& pooling) {
    const reference::Rows<T> rows = reference::WeightedGrad(pooling, c.weights.values, c.grad.values.data(), c.width,
                                                            c.indices.wide, c.segment_ids.wide);
    const auto num_unique = static_cast<int64_t>(rows.unique.size());
    const Array<T> want{rows.values, Shape{num_unique, c.width}};
    const Array<T> dense{reference::Densify(rows, c.table_rows, c.width), Shape{c.table_rows, c.width}};
    for (const IndexTypePair types : IndexTypePairs(c.indices)) {
      const TensorView indices = c.indices.As(types.index), segment_ids = c.segment_ids.As(types.segment);
      ForEachSetting([&](const Context& ctx) {
        const auto v2 =
            SparseSegmentGradV2(pooling, c.grad, indices, segment_ids, TensorView::Scalar(c.table_rows), ctx);
        ASSERT_THAT(v2, IsOk());
        EXPECT_TRUE(HoldsBits(v2->output.view(), want));
        EXPECT_EQ(v2->sorted_unique_indices.shape()[0], num_unique);
        const auto v1 = SparseSegmentGrad(pooling, c.grad, indices, segment_ids, TensorView::Scalar(c.table_rows), ctx);
        ASSERT_THAT(v1, IsOk());
        EXPECT_TRUE(HoldsBits(v1->view(), dense));
      });
    }
  });
}

template <class Types>
class SparseSegmentWeightsTest : public ::testing::Test {
 public:
  using Case = WeightedCase<Types>;
};
TYPED_TEST_SUITE(SparseSegmentWeightsTest, WeightedTypes);

TYPED_TEST(SparseSegmentWeightsTest, ForwardMatchesTheReference) {
  std::vector<int64_t> lengths(36);
  std::iota(lengths.begin(), lengths.end(), 0);
  uint64_t seed = 0;
  for (const int64_t width : {1, 3, 8, 17, 63, 131}) {
    ExpectForward(TestFixture::Case::Random(++seed, {3, 0, 1, 16, 2}, 11, width));
  }
  ExpectForward(TestFixture::Case::Random(++seed, lengths, 50, 21, /*hostile=*/false));
  ExpectForward(TestFixture::Case::Random(++seed, {0, 0}, 50, 5));
}

TYPED_TEST(SparseSegmentWeightsTest, GradientMatchesTheReference) {
  uint64_t seed = 0;
  for (const int64_t width : {1, 3, 17, 63, 131}) {
    ExpectGrad(TestFixture::Case::Random(++seed, {3, 0, 1, 16, 2}, 11, width));
    ExpectGrad(TestFixture::Case::Random(++seed, {3, 0, 1, 16, 2}, 1'000, width));
    auto c = TestFixture::Case::Random(++seed, {13, 20}, 30, width, /*hostile=*/false);
    c.ShuffleSegments(seed);
    ExpectGrad(c);
  }
  ExpectGrad(TestFixture::Case::Random(++seed, {0, 0}, 50, 5));
}

// The weights come along however the ids are sorted: in three passes, whose result lies in other memory than that of an
// even number of passes, or not at all.
TYPED_TEST(SparseSegmentWeightsTest, GradientMatchesTheReferenceHoweverIdsAreSorted) {
  auto c = TestFixture::Case::Random(8, {40, 0, 53}, 5'000, 3, /*hostile=*/false);
  ExpectGrad(c);
  std::ranges::sort(c.indices.wide);
  c.indices = c.indices.wide;
  ExpectGrad(c);
}

TYPED_TEST(SparseSegmentWeightsTest, MatchesTheReferenceWhenTheWorkIsSplit) {
  using Types = TypeParam;
  if constexpr (std::is_same_v<Types, Weighted<float, float>> || std::is_same_v<Types, Weighted<double, float>>) {
    std::vector<int64_t> lengths = Generator(1).RowLengths(4'000, 9);
    lengths[100] = 5'000;
    auto c = TestFixture::Case::Random(1, lengths, 3'000, 5, /*hostile=*/false);
    ExpectForward(c);
    ExpectGrad(c);
    c.ShuffleSegments(2);
    ExpectGrad(c);
    ExpectGrad(TestFixture::Case::Random(3, lengths, 1'000, 2, /*hostile=*/false));  // sorted in one pass
  }
}

// A plan, a padded result, slices and the fused update give the bits of the plain functions, with any weights.
TYPED_TEST(SparseSegmentWeightsTest, EveryFormHasTheSameBits) {
  using T = typename TypeParam::Value;
  const auto c = TestFixture::Case::Random(5, Generator(5).RowLengths(40, 6), 300, 19, /*hostile=*/false);
  const TensorView indices = c.indices.As(DType::kInt64), segment_ids = c.segment_ids.As(DType::kInt32);
  const TensorView dim0 = TensorView::Scalar(c.table_rows);
  const auto plan = SegmentPlan::Make(indices, segment_ids, {c.table_rows, c.num_segments});
  ASSERT_THAT(plan, IsOk());
  c.ForEachPooling([&](const SegmentPooling& pooling) {
    const auto pooled =
        SparseSegmentWithNumSegments(pooling, c.data, indices, segment_ids, TensorView::Scalar(c.num_segments));
    const auto rows = SparseSegmentGradV2(pooling, c.grad, indices, segment_ids, dim0);
    const auto dense = SparseSegmentGrad(pooling, c.grad, indices, segment_ids, dim0);
    ASSERT_THAT(pooled, IsOk());
    ASSERT_THAT(rows, IsOk());
    ASSERT_THAT(dense, IsOk());
    const auto same = [](const Tensor& got, const Tensor& want) { return HoldsBits(got.view(), want.view()); };
    EXPECT_TRUE(same(*SparseSegment(pooling, c.data, *plan), *pooled));
    EXPECT_TRUE(same(SparseSegmentGradV2(pooling, c.grad, *plan)->output, rows->output));
    EXPECT_TRUE(same(*SparseSegmentGrad(pooling, c.grad, *plan), *dense));
    const auto slices = SparseSegmentGradSlices(pooling, c.grad, indices, segment_ids, c.table_rows);
    ASSERT_THAT(slices, IsOk());
    EXPECT_TRUE(same(slices->values, rows->output));
    const int64_t num_unique = rows->output.shape()[0];
    const auto padded = SparseSegmentGradV2Padded(pooling, c.grad, indices, segment_ids, dim0, num_unique);
    ASSERT_THAT(padded, IsOk());
    EXPECT_TRUE(same(padded->output, rows->output));

    std::vector<T> tables[] = {c.data.values, c.data.values, c.data.values};
    const auto table = [&](int k) { return MutableTensorView::Of(tables[k].data(), c.data.shape); };
    ASSERT_THAT(ApplyRows(slices->view(), Sgd{0.5}, table(0)), IsOk());
    ASSERT_THAT(SparseSegmentGradApply(pooling, c.grad, indices, segment_ids, Sgd{0.5}, table(1)), IsOk());
    ASSERT_THAT(SparseSegmentGradApply(pooling, c.grad, *plan, Sgd{0.5}, table(2)), IsOk());
    EXPECT_TRUE(HoldsBits(table(1).view(), table(0).view()));
    EXPECT_TRUE(HoldsBits(table(2).view(), table(0).view()));
  });
}

TYPED_TEST(SparseSegmentWeightsTest, EveryAllocationFailureIsReported) {
  const auto c = TestFixture::Case::Random(6, Generator(6).RowLengths(3'000, 4), 5'000, 3, /*hostile=*/false);
  const TensorView indices = c.indices.As(DType::kInt32), segment_ids = c.segment_ids.As(DType::kInt32);
  const SegmentPooling pooling = c.Pooling(SegmentCombiner::kMean, WeightDivisor::kWeights);
  ExpectEveryAllocationFailureIsReported({}, [&](const Context& failing) {
    return SparseSegmentGradV2(pooling, c.grad, indices, segment_ids, TensorView::Scalar(c.table_rows), failing)
        .status();
  });
  ExpectEveryAllocationFailureIsReported({}, [&](const Context& failing) {
    return SparseSegment(pooling, c.data, indices, segment_ids, failing).status();
  });
}

// The bounds of sparse_segment.h.
TYPED_TEST(SparseSegmentWeightsTest, ExtraMemoryIsBounded) {
  using A = SumType<typename TypeParam::Value>;
  const size_t copy = std::is_same_v<typename TypeParam::Weight, A> ? 0 : sizeof(A);
  const auto c = TestFixture::Case::Random(7, Generator(7).RowLengths(6'000, 10), 5'000, 7, /*hostile=*/false);
  const TensorView indices = c.indices.As(DType::kInt32), segment_ids = c.segment_ids.As(DType::kInt32);
  const size_t n = c.indices.wide.size();
  c.ForEachPooling([&](const SegmentPooling& pooling) {
    CountingAllocator allocator;
    Context counting;
    counting.allocator = &allocator;
    {
      const auto pooled = SparseSegment(pooling, c.data, indices, segment_ids, counting);
      ASSERT_THAT(pooled, IsOk());
      EXPECT_EQ(allocator.peak_bytes(), pooled->bytes() + copy * n);
    }
    CountingAllocator for_grad;
    counting.allocator = &for_grad;
    const auto grad =
        SparseSegmentGradV2(pooling, c.grad, indices, segment_ids, TensorView::Scalar(c.table_rows), counting);
    ASSERT_THAT(grad, IsOk());
    const size_t outputs = grad->output.bytes() + grad->sorted_unique_indices.bytes();
    const auto rows = static_cast<size_t>(grad->output.shape()[0]);
    const size_t counters = (8 << 10) * (n / 16'384 + 1);
    EXPECT_LE(for_grad.peak_bytes() - outputs,
              (16 + 2 * sizeof(A)) * n + 8 * (rows + 1) + 12 * size_t{6'000} + counters);
  });
}

TEST(SparseSegmentWeights, DivisorsOfZeroGiveZero) {
  const Array<float> data{{1, 2, 4, 8}, Shape{4, 1}}, grad{{3, 5, 7}, Shape{3, 1}};
  const Array<int32_t> indices{{0, 1, 2, 3, 0}}, segment_ids{{0, 0, 1, 1, 2}};
  const Array<float> weights{{1, -1, 0, 0, 2}};
  const SegmentPooling mean{SegmentCombiner::kMean, {weights}};
  EXPECT_TRUE(HoldsBits(SparseSegment(mean, data, indices, segment_ids)->view(), Array<float>{{0, 0, 1}, Shape{3, 1}}));
  EXPECT_TRUE(HoldsBits(SparseSegmentGrad(mean, grad, indices, segment_ids, TensorView::Scalar(4))->view(),
                        Array<float>{{7, 0, 0, 0}, Shape{4, 1}}));
  EXPECT_TRUE(HoldsBits(SparseSegmentWeightsGrad(mean, grad, data, indices, segment_ids)->view(),
                        Array<float>{{0, 0, 0, 0, 0}}));
  const SegmentPooling by_count{SegmentCombiner::kMean, {weights, WeightDivisor::kCount}};
  EXPECT_TRUE(
      HoldsBits(SparseSegment(by_count, data, indices, segment_ids)->view(), Array<float>{{-0.5, 0, 2}, Shape{3, 1}}));
}

// A hot row is a tree of sums in kFast: the same bits in every setting, other bits than left to right.
TEST(SparseSegmentWeights, FastSumsAreDeterministic) {
  const auto c = WeightedCase<Weighted<float, float>>::Random(8, {2'000, 2'000}, 3, 20, /*hostile=*/false);
  const SegmentPooling pooling = c.Pooling(SegmentCombiner::kMean, WeightDivisor::kWeights);
  const auto run = [&](const Context& ctx) {
    return SparseSegmentGrad(pooling, c.grad, c.indices.As(DType::kInt32), c.segment_ids.As(DType::kInt32),
                             TensorView::Scalar(c.table_rows), ctx);
  };
  const auto sequential = run({});
  Context fast;
  fast.accumulation = Accumulation::kFast;
  const auto first = run(fast);
  EXPECT_FALSE(HoldsBits(first->view(), sequential->view()));
  ForEachSetting([&](const Context& ctx) {
    Context setting = ctx;
    setting.accumulation = Accumulation::kFast;
    EXPECT_TRUE(HoldsBits(run(setting)->view(), first->view()));
  });
}

TEST(SparseSegmentWeights, BadWeightsAreRefused) {
  const Array<float> data{{1, 2}, Shape{2, 1}}, grad{{3}, Shape{1, 1}};
  const Array<int32_t> indices{{0, 1}}, segment_ids{{0, 0}}, whole{{1, 2}, Shape{2, 1}};
  const Array<float> three{{1, 2, 3}}, matrix{{1, 2}, Shape{2, 1}}, good{{1, 2}};
  const Array<double> doubles{{1, 2}};
  const auto forward = [&](const TensorView& weights, const TensorView& rows) {
    return SparseSegment({SegmentCombiner::kSum, {weights}}, rows, indices, segment_ids).status();
  };
  const auto gradient = [&](const TensorView& weights) {
    const SegmentPooling pooling{SegmentCombiner::kMean, {weights}};
    return SparseSegmentGradV2(pooling, grad, indices, segment_ids, TensorView::Scalar(2)).status();
  };
  const auto invalid = [](const char* text) { return StatusIs(Code::kInvalidArgument, HasSubstr(text)); };
  EXPECT_THAT(forward(doubles, data), invalid("SparseSegmentSum: weights have the wrong type [weights: expected "
                                              "float32 or that of data, float32, got float64]"));
  EXPECT_THAT(forward(good, whole), invalid("SparseSegmentSum: data has dtype int32"));
  EXPECT_THAT(forward(three, data), invalid("SparseSegmentSum: weights and indices should have same size [weights: "
                                            "expected shape [2], got shape [3]]"));
  EXPECT_THAT(gradient(matrix), invalid("SparseSegmentMeanGradV2: weights and indices should have same size [weights: "
                                        "expected shape [2], got shape [2,1]]"));
  EXPECT_THAT(gradient(whole), invalid("weights: expected float32 or that of grad, float32, got int32"));
  EXPECT_THAT(gradient({nullptr, DType::kFloat32, Shape{2}, {}}), invalid("weights: expected 2 elements, got a null"));
  EXPECT_THAT(gradient({good.values.data(), DType::kFloat32, Shape{2}, Device::Cuda()}),
              invalid("operands are on different devices [weights: expected that of grad"));
}

}  // namespace
}  // namespace raggrad
