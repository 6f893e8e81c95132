// Weights with Accumulation::kReproducible: the bits of the definition, for every order of the ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "raggrad/ops/sparse_segment/test/weighted_case.h"
#include "raggrad/ops/sparse_segment/test/weighted_reproducible.h"
#include "raggrad/testing/combiners.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::sparse_segment::WeightedCase;
using ::raggrad::sparse_segment::WeightedTypes;
using ::raggrad::testing::Array;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::Generator;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::kCombiners;
using ::raggrad::testing::Reproducible;
namespace reference = sparse_segment::reference;

template <class Types>
auto ExpectedGrad(const WeightedCase<Types>& c, const SegmentPooling& pooling) {
  const auto rows = reference::ReproducibleWeightedGrad(pooling, c.weights.values, c.grad.values.data(), c.width,
                                                        c.indices.wide, c.segment_ids.wide);
  return Array<typename Types::Value>{rows.values, Shape{static_cast<int64_t>(rows.unique.size()), c.width}};
}

// [segments, width]: sums of w * row, divided in double. For ordinary numbers.
template <class Types>
auto ExpectedForward(const WeightedCase<Types>& c, const SegmentPooling& pooling) {
  using T = typename Types::Value;
  using A = SumType<T>;
  const std::vector<A> w = reference::WidenAll<T>(c.weights.values);
  std::vector<T> values(static_cast<size_t>(c.num_segments * c.width), T{});
  for (const auto& [segment, ids] : reference::SegmentsOf(c.segment_ids.wide)) {
    const auto count = static_cast<double>(ids.size());
    double divisor = static_cast<double>(reference::ReproducibleDivisor(pooling, w, ids));
    if (pooling.weights->divisor == WeightDivisor::kCount && pooling.combiner == SegmentCombiner::kSqrtN) {
      divisor = std::sqrt(count);
    }
    reference::Terms<A> terms;
    for (const size_t i : ids) {
      std::vector<A>& row = terms.emplace_back();
      for (int64_t k = 0; k < c.width; ++k) {
        const T value = c.data.values[static_cast<size_t>(c.indices.wide[i] * c.width + k)];
        row.push_back(reference::Multiply(reference::Widen(value), reference::Flush(w[i])));
      }
    }
    std::vector<T> row;
    if (divisor != 0) reference::AppendRow(terms, divisor, row);
    std::copy(row.begin(), row.end(), values.begin() + segment * c.width);
  }
  return Array<T>{values, Shape{c.num_segments, c.width}};
}

template <class Types>
Result<SparseSegmentGradV2Output> GradOf(const WeightedCase<Types>& c, const SegmentPooling& pooling,
                                         const Context& ctx) {
  return SparseSegmentGradV2(pooling, c.grad, c.indices.As(DType::kInt32), c.segment_ids.As(DType::kInt64),
                             TensorView::Scalar(c.table_rows), ctx);
}

template <class Types>
Result<Tensor> ForwardOf(const WeightedCase<Types>& c, const SegmentPooling& pooling, const Context& ctx) {
  return SparseSegmentWithNumSegments(pooling, c.data, c.indices.As(DType::kInt64), c.segment_ids.As(DType::kInt32),
                                      TensorView::Scalar(c.num_segments), ctx);
}

template <class Types>
Result<Tensor> WeightsGradOf(const WeightedCase<Types>& c, const SegmentPooling& pooling, const Context& ctx) {
  return SparseSegmentWeightsGrad(pooling, c.grad, c.data, c.indices.As(DType::kInt64), c.segment_ids.As(DType::kInt32),
                                  ctx);
}

template <class Types>
class SparseSegmentWeightsReproducibleTest : public ::testing::Test {
 public:
  using Case = WeightedCase<Types>;

  static void ExpectDefinition(const Case& c, bool ascending, bool ordinary) {
    c.ForEachPooling([&](const SegmentPooling& pooling) {
      const auto rows = ExpectedGrad(c, pooling);
      const auto pooled = ExpectedForward(c, pooling);
      ForEachSetting([&](const Context& setting) {
        const Context ctx = Reproducible(setting);
        const auto grad = GradOf(c, pooling, ctx);
        ASSERT_THAT(grad, IsOk());
        EXPECT_TRUE(HoldsBits(grad->output.view(), rows));
        if (!ascending || !ordinary) return;
        const auto forward = ForwardOf(c, pooling, ctx);
        ASSERT_THAT(forward, IsOk());
        EXPECT_TRUE(HoldsBits(forward->view(), pooled));
      });
    });
  }
};
TYPED_TEST_SUITE(SparseSegmentWeightsReproducibleTest, WeightedTypes);

TYPED_TEST(SparseSegmentWeightsReproducibleTest, HasTheBitsOfTheDefinition) {
  uint64_t seed = 0;
  for (const int64_t width : {1, 3, 8, 17, 63, 131}) {
    for (const bool hostile : {true, false}) {
      auto c = TestFixture::Case::Random(++seed, {3, 0, 1, 16, 2, 9}, 7, width, hostile);
      TestFixture::ExpectDefinition(c, true, !hostile);
      c.ShuffleSegments(seed);
      TestFixture::ExpectDefinition(c, false, !hostile);
    }
  }
}

TYPED_TEST(SparseSegmentWeightsReproducibleTest, SplitsHotRowsAndLongSegments) {
  TestFixture::ExpectDefinition(TestFixture::Case::Random(1, {20'000, 5, 9'000}, 2, 3, /*hostile=*/false), true, true);
}

// Ids of a segment change places; so do the gradients of their weights, and nothing else changes.
TYPED_TEST(SparseSegmentWeightsReproducibleTest, HasTheSameBitsInEveryOrderOfTheIds) {
  using W = typename TypeParam::Weight;
  std::mt19937 random(1);
  for (const bool hostile : {false, true}) {
    const auto c = TestFixture::Case::Random(2, Generator(2).RowLengths(300, 30), 100, 5, hostile);
    std::vector<size_t> order(c.indices.wide.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return c.segment_ids.wide[a] < c.segment_ids.wide[b]; });
    auto other = c;
    for (size_t i = 0; i < order.size(); ++i) {
      other.indices.wide[i] = c.indices.wide[order[i]];
      other.weights.values[i] = c.weights.values[order[i]];
    }
    other.indices = other.indices.wide;
    for (const SegmentCombiner combiner : kCombiners) {
      const auto pooling = c.Pooling(combiner, WeightDivisor::kWeights);
      const auto other_pooling = other.Pooling(combiner, WeightDivisor::kWeights);
      const Context ctx = Reproducible();
      EXPECT_TRUE(HoldsBits(GradOf(other, other_pooling, ctx)->output.view(), GradOf(c, pooling, ctx)->output.view()));
      EXPECT_TRUE(HoldsBits(ForwardOf(other, other_pooling, ctx)->view(), ForwardOf(c, pooling, ctx)->view()));
      const auto before = WeightsGradOf(c, pooling, ctx), after = WeightsGradOf(other, other_pooling, ctx);
      ASSERT_THAT(before, IsOk());
      std::vector<W> moved;
      for (const size_t i : order) moved.push_back(before->template As<W>()[i]);
      EXPECT_TRUE(HoldsBits(after->view(), Array<W>{moved}));
      if (combiner == SegmentCombiner::kSum || hostile || !std::is_same_v<W, SumType<typename TypeParam::Value>>)
        continue;
      const auto sequential = WeightsGradOf(c, pooling, {}), sequential_after = WeightsGradOf(other, other_pooling, {});
      std::vector<W> sequential_moved;
      for (const size_t i : order) sequential_moved.push_back(sequential->template As<W>()[i]);
      EXPECT_FALSE(HoldsBits(sequential_after->view(), Array<W>{sequential_moved}));
    }
  }
}

TYPED_TEST(SparseSegmentWeightsReproducibleTest, EveryAllocationFailureIsReported) {
  auto c = TestFixture::Case::Random(3, Generator(3).RowLengths(300, 9), 50, 3, /*hostile=*/false);
  const SegmentPooling pooling = c.Pooling(SegmentCombiner::kMean, WeightDivisor::kWeights);
  const auto expect = [&](const auto& call) { ExpectEveryAllocationFailureIsReported(Reproducible(), call); };
  expect([&](const Context& ctx) { return ForwardOf(c, pooling, ctx).status(); });
  expect([&](const Context& ctx) { return WeightsGradOf(c, pooling, ctx).status(); });
  expect([&](const Context& ctx) { return GradOf(c, pooling, ctx).status(); });
  c.ShuffleSegments(4);
  expect([&](const Context& ctx) { return GradOf(c, pooling, ctx).status(); });
}

}  // namespace
}  // namespace raggrad
