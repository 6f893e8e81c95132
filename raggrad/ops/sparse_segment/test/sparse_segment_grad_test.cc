#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "raggrad/ops/sparse_segment/sparse_segment.h"
#include "raggrad/ops/sparse_segment/test/reference.h"
#include "raggrad/ops/sparse_segment/test/test_ids.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/combiners.h"
#include "raggrad/testing/counting_allocator.h"
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
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::kCombiners;
namespace reference = sparse_segment::reference;

template <class V>
V MakeValue(double x) {
  V value;
  if constexpr (std::is_same_v<V, double>) {
    value = x;
  } else {
    reference::Narrow(static_cast<float>(x), value);
  }
  return value;
}

// Magnitudes from subnormal to overflow, zeros of both signs, infinities and NaN, so that rounding and flushing show.
template <class V>
V HostileValue(std::mt19937& random) {
  switch (random() % 16) {
    case 0:
      return MakeValue<V>(0.0);
    case 1:
      return MakeValue<V>(-0.0);
    case 2:
      return MakeValue<V>(random() % 8 == 0 ? std::numeric_limits<double>::infinity() : 65504.0);
    case 3:
      return MakeValue<V>(random() % 8 == 0 ? std::numeric_limits<double>::quiet_NaN() : -65504.0);
    case 4:
      return MakeValue<V>(std::ldexp(static_cast<double>(random() % 1024), -149));
    case 5:
      return MakeValue<V>(std::ldexp(-static_cast<double>(random() % 1024), -1070));
    case 6:
      return MakeValue<V>(std::ldexp(static_cast<double>(random() % 1024), -24));
    case 7:  // half of it is a tie between the largest subnormal and the smallest normal number
      return std::is_same_v<V, double> ? MakeValue<V>(std::ldexp(0x1p53 - 1, -1074))
                                       : MakeValue<V>(std::ldexp(0x1p24 - 1, -149));
    default:
      return MakeValue<V>(std::normal_distribution<double>(0, 1)(random));
  }
}

template <class V>
struct Case {
  Array<V> grad{{}};
  Ids indices{{}};
  Ids segment_ids{{}};
  int32_t table_rows = 0;

  // One in `hot` ids names row table_rows / 2; 0: none.
  static Case Random(int64_t n, int64_t segments, const Shape& inner, int32_t table_rows, unsigned hot, uint32_t seed) {
    std::mt19937 random(seed);
    Case c;
    c.table_rows = table_rows;
    const Shape shape = Shape::WithDim0(segments, inner.dims());
    std::vector<V> grad(static_cast<size_t>(*shape.NumElements()));
    for (V& g : grad) g = HostileValue<V>(random);
    c.grad = {std::move(grad), shape};
    std::vector<int64_t> indices(static_cast<size_t>(n));
    std::vector<int64_t> segment_ids(static_cast<size_t>(n));
    for (size_t i = 0; i < indices.size(); ++i) {
      const bool is_hot = hot != 0 && random() % hot == 0;
      indices[i] = is_hot ? table_rows / 2 : static_cast<int64_t>(random() % static_cast<uint32_t>(table_rows));
      segment_ids[i] = static_cast<int64_t>(random()) % segments;
    }
    if (seed % 2 == 0) std::sort(segment_ids.begin(), segment_ids.end());
    c.indices = indices;
    c.segment_ids = segment_ids;
    return c;
  }

  int64_t width() const { return *Shape::Product(grad.shape.tail()); }

  Result<SparseSegmentGradV2Output> V2(SegmentCombiner combiner, const Context& ctx, DType index = DType::kInt32,
                                       DType segment = DType::kInt32) const {
    return SparseSegmentGradV2(combiner, grad, indices.As(index), segment_ids.As(segment),
                               TensorView::Scalar(table_rows), ctx);
  }
  Result<Tensor> V1(SegmentCombiner combiner, const Context& ctx, DType index = DType::kInt32,
                    DType segment = DType::kInt32) const {
    return SparseSegmentGrad(combiner, grad, indices.As(index), segment_ids.As(segment), TensorView::Scalar(table_rows),
                             ctx);
  }
  reference::Rows<V> Reference(SegmentCombiner combiner) const {
    return *reference::Grad(combiner, grad.values.data(), grad.shape[0], width(), indices.wide, segment_ids.wide,
                            table_rows);
  }

  // Compares both operators with the reference, for all combiners, index types, thread counts and instruction sets.
  void ExpectExact() const {
    for (const SegmentCombiner combiner : kCombiners) {
      const reference::Rows<V> want = Reference(combiner);
      const auto rows = static_cast<int64_t>(want.unique.size());
      const Array<V> want_rows{want.values, Shape::WithDim0(rows, grad.shape.tail())};
      const Array<V> want_dense{reference::Densify(want, table_rows, width()),
                                Shape::WithDim0(table_rows, grad.shape.tail())};
      for (const IndexTypePair types : IndexTypePairs(indices)) {
        SCOPED_TRACE("combiner " + std::to_string(static_cast<int>(combiner)) + ", " +
                     std::string(DTypeName(types.index)) + " indices, " + std::string(DTypeName(types.segment)) +
                     " segment_ids");
        ForEachSetting([&](const Context& ctx) {
          const auto v2 = V2(combiner, ctx, types.index, types.segment);
          ASSERT_THAT(v2, IsOk());
          EXPECT_TRUE(HoldsBits(v2->output.view(), want_rows));
          const TensorView& unique = v2->sorted_unique_indices.view();
          EXPECT_TRUE(types.index == DType::kInt32
                          ? HoldsBits(unique, Array<int32_t>{{want.unique.begin(), want.unique.end()}})
                          : HoldsBits(unique, Array<int64_t>{want.unique}));
          const auto v1 = V1(combiner, ctx, types.index, types.segment);
          ASSERT_THAT(v1, IsOk());
          EXPECT_TRUE(HoldsBits(v1->view(), want_dense));
        });
      }
    }
  }
};

template <class V>
class SparseSegmentGradTest : public ::testing::Test {};
TYPED_TEST_SUITE(SparseSegmentGradTest, GtestTypes<FloatTypes>);

TYPED_TEST(SparseSegmentGradTest, MatchesTheReferenceForEveryShape) {
  uint32_t seed = 0;
  for (const Shape& inner : {Shape{}, Shape{1}, Shape{3}, Shape{2, 5}, Shape{16}, Shape{0}, Shape{63}, Shape{129}}) {
    for (const int64_t n : {1, 2, 47, 49, 300}) {
      SCOPED_TRACE("n = " + std::to_string(n) + ", inner rank " + std::to_string(inner.rank()));
      Case<TypeParam>::Random(n, 7, inner, 23, 0, ++seed).ExpectExact();
      Case<TypeParam>::Random(n, 7, inner, 1'000, 0, ++seed).ExpectExact();
    }
  }
}

TYPED_TEST(SparseSegmentGradTest, MatchesTheReferenceWhenTheWorkIsSplit) {
  Case<TypeParam>::Random(70'000, 500, Shape{5}, 3'000, 0, 1).ExpectExact();
  Case<TypeParam>::Random(70'000, 500, Shape{}, 3'000'000, 0, 2).ExpectExact();
}

TYPED_TEST(SparseSegmentGradTest, SplitsAHotRowByColumns) {
  Case<TypeParam>::Random(40'000, 300, Shape{100}, 100, 2, 3).ExpectExact();  // half of all ids name one row
}

TYPED_TEST(SparseSegmentGradTest, OneRowTakesEverything) {
  Case<TypeParam>::Random(40'000, 300, Shape{33}, 1, 0, 4).ExpectExact();
}

TYPED_TEST(SparseSegmentGradTest, NothingToDo) {
  using C = Case<TypeParam>;
  C c = C::Random(5, 3, Shape{2}, 4, 0, 5);
  c.indices = std::vector<int64_t>{};
  c.segment_ids = std::vector<int64_t>{};
  c.ExpectExact();  // V1: zeros, where TensorFlow leaves the memory as it was
  c = C::Random(5, 3, Shape{2}, 4, 0, 6);
  c.table_rows = 0;
  c.indices = std::vector<int64_t>{0, 1, -1, 2, 3};  // not looked at, as in TensorFlow
  c.segment_ids = std::vector<int64_t>{0, 0, 100, 1, 2};
  c.ExpectExact();
}

TYPED_TEST(SparseSegmentGradTest, SortedIndicesNeedNoSort) {
  auto c = Case<TypeParam>::Random(40'000, 300, Shape{4}, 5'000, 0, 7);
  std::sort(c.indices.wide.begin(), c.indices.wide.end());
  c.indices = c.indices.wide;
  c.ExpectExact();
}

TYPED_TEST(SparseSegmentGradTest, EveryAllocationFailureIsReported) {
  for (const int64_t n : {3'000, 40'000}) {
    const auto c = Case<TypeParam>::Random(n, 300, Shape{3}, 5'000, 0, 8);
    ForEachSetting([&](const Context& ctx) {
      ExpectEveryAllocationFailureIsReported(
          ctx, [&](const Context& failing) { return c.V2(SegmentCombiner::kMean, failing).status(); });
      ExpectEveryAllocationFailureIsReported(
          ctx, [&](const Context& failing) { return c.V1(SegmentCombiner::kMean, failing).status(); });
    });
  }
}

// The bound of the header holds whether the table has about n rows or 2^31 - 1.
TYPED_TEST(SparseSegmentGradTest, ExtraMemoryIsBounded) {
  for (const int32_t n : {1, 49, 1'000, 30'000, 70'000}) {
    for (const int32_t table_rows : {n, 2 * n, std::numeric_limits<int32_t>::max()}) {
      auto c = Case<TypeParam>::Random(n, 400, Shape{3}, std::min(table_rows, 1'000'000), 0, 9);
      c.table_rows = table_rows;
      ForEachSetting([&](const Context& ctx) {
        CountingAllocator allocator;
        Context counting = ctx;
        counting.allocator = &allocator;
        const auto result = c.V2(SegmentCombiner::kMean, counting);
        ASSERT_THAT(result, IsOk());
        const size_t outputs = result->output.bytes() + result->sorted_unique_indices.bytes();
        const auto rows = static_cast<size_t>(result->output.shape()[0]);
        EXPECT_LE(allocator.peak_bytes() - outputs, 24 * static_cast<size_t>(n) + 8 * rows + 16 * size_t{400});
      });
    }
  }
}

// Compares with finite differences of f(table) = sum over s, c of weight[s,c] * combine(rows)[s,c].
TYPED_TEST(SparseSegmentGradTest, IsTheGradientOfTheForward) {
  if constexpr (std::is_same_v<TypeParam, double>) {
    std::mt19937 random(10);
    std::normal_distribution<double> normal;
    constexpr int64_t kRows = 6, kSegments = 4, kWidth = 3;
    auto c = Case<TypeParam>::Random(15, kSegments, Shape{kWidth}, kRows, 0, 10);
    for (double& g : c.grad.values) g = normal(random);
    std::vector<double> table(kRows * kWidth);
    for (double& x : table) x = normal(random);
    for (const SegmentCombiner combiner : kCombiners) {
      const auto forward = [&] {
        std::vector<double> count(kSegments, 0.0);
        for (const int64_t s : c.segment_ids.wide) count[static_cast<size_t>(s)] += 1;
        double loss = 0;
        for (size_t i = 0; i < c.indices.wide.size(); ++i) {
          const auto s = static_cast<size_t>(c.segment_ids.wide[i]);
          const double divisor = combiner == SegmentCombiner::kSum    ? 1
                                 : combiner == SegmentCombiner::kMean ? count[s]
                                                                      : std::sqrt(count[s]);
          for (size_t k = 0; k < kWidth; ++k) {
            loss +=
                c.grad.values[s * kWidth + k] * table[static_cast<size_t>(c.indices.wide[i]) * kWidth + k] / divisor;
          }
        }
        return loss;
      };
      const auto gradient = c.V1(combiner, {});
      ASSERT_THAT(gradient, IsOk());
      for (size_t i = 0; i < table.size(); ++i) {
        const double saved = table[i];
        table[i] = saved + 0.5;  // the forward is linear: a large step has no truncation error
        const double above = forward();
        table[i] = saved - 0.5;
        const double below = forward();
        table[i] = saved;
        EXPECT_NEAR(gradient->template As<double>()[i], above - below, 1e-12);
      }
    }
  }
}

TYPED_TEST(SparseSegmentGradTest, FastSumsAreDeterministicAndWithinTheirBound) {
  using V = TypeParam;
  if constexpr (std::is_same_v<V, float> || std::is_same_v<V, double>) {
    auto c = Case<TypeParam>::Random(30'000, 100, Shape{70}, 40, 2, 11);
    std::mt19937 random(11);
    for (V& g : c.grad.values) g = static_cast<V>(std::normal_distribution<double>(0, 1)(random));
    const int64_t width = c.width();
    // Exact sums in long double, sums of magnitudes and the number of terms of each row, over all rows of the table.
    std::vector<long double> exact(static_cast<size_t>(c.table_rows * width), 0);
    std::vector<double> magnitude(exact.size(), 0);
    std::vector<int64_t> terms(static_cast<size_t>(c.table_rows), 0);
    for (size_t i = 0; i < c.indices.wide.size(); ++i) {
      const auto row = c.indices.wide[i];
      ++terms[static_cast<size_t>(row)];
      for (int64_t k = 0; k < width; ++k) {
        const V g = c.grad.values[static_cast<size_t>(c.segment_ids.wide[i] * width + k)];
        exact[static_cast<size_t>(row * width + k)] += static_cast<long double>(g);
        magnitude[static_cast<size_t>(row * width + k)] += std::abs(static_cast<double>(g));
      }
    }
    std::vector<V> first;
    ForEachSetting([&](const Context& ctx) {
      Context fast = ctx;
      fast.accumulation = Accumulation::kFast;
      const auto result = c.V1(SegmentCombiner::kSum, fast);
      ASSERT_THAT(result, IsOk());
      const std::vector<V> got(result->template As<V>(), result->template As<V>() + exact.size());
      if (first.empty()) first = got;
      EXPECT_EQ(got, first);
      const double unit = std::numeric_limits<V>::epsilon() / 2;
      for (size_t i = 0; i < exact.size(); ++i) {
        const double depth =
            64 + std::ceil(std::log2(1 + static_cast<double>(terms[i / static_cast<size_t>(width)]) / 64));
        EXPECT_LE(std::abs(static_cast<double>(static_cast<long double>(got[i]) - exact[i])),
                  1.01 * depth * unit * magnitude[i]);
      }
    });
    const auto sequential = c.V1(SegmentCombiner::kSum, {});
    EXPECT_NE(std::vector<V>(sequential->template As<V>(), sequential->template As<V>() + exact.size()), first)
        << "kFast should sum in another order";
  }
}

}  // namespace
}  // namespace raggrad
