// Accumulation::kReproducible in the gradients: the bits of the definition, for every order of the ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "raggrad/ops/sparse_segment/indexed_slices.h"
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
using ::raggrad::testing::CountingAllocator;
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
  Array<V> grad{{}};
  Ids indices{{}};
  Ids segment_ids{{}};
  int32_t table_rows = 0;

  static Case Random(int64_t n, int64_t segments, int64_t width, int32_t rows, int range, std::mt19937& random) {
    Case c;
    c.table_rows = rows;
    c.grad = {WideValues<V>(static_cast<size_t>(segments * width), range, random), Shape{segments, width}};
    c.indices = RandomIds(n, rows, random);
    c.segment_ids = RandomIds(n, segments, random);
    return c;
  }

  // The same pairs of ids in another order.
  Case Shuffled(std::mt19937& random) const {
    std::vector<size_t> order(indices.wide.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    const auto in_order = [&](const std::vector<int64_t>& ids) {
      std::vector<int64_t> shuffled;
      for (const size_t i : order) shuffled.push_back(ids[i]);
      return shuffled;
    };
    Case c = *this;
    c.indices = in_order(indices.wide);
    c.segment_ids = in_order(segment_ids.wide);
    return c;
  }

  TensorView index() const { return indices.As(DType::kInt32); }
  TensorView segment() const { return segment_ids.As(DType::kInt64); }
  Result<SparseSegmentGradV2Output> V2(SegmentCombiner combiner, const Context& ctx) const {
    return SparseSegmentGradV2(combiner, grad, index(), segment(), TensorView::Scalar(table_rows), ctx);
  }
  Array<V> Expected(SegmentCombiner combiner) const {
    const int64_t width = grad.shape[1];
    auto rows = reference::ReproducibleGrad(combiner, grad.values.data(), width, indices.wide, segment_ids.wide);
    const auto count = static_cast<int64_t>(rows.unique.size());
    return {std::move(rows.values), Shape{count, width}};
  }

  void ExpectDefinition(SegmentCombiner combiner) const {
    const Array<V> want = Expected(combiner);
    ForEachSetting([&](const Context& ctx) {
      const auto got = V2(combiner, Reproducible(ctx));
      ASSERT_THAT(got, IsOk());
      EXPECT_TRUE(HoldsBits(got->output.view(), want));
    });
  }
};

template <class V>
class SparseSegmentReproducibleTest : public ::testing::Test {};
TYPED_TEST_SUITE(SparseSegmentReproducibleTest, GtestTypes<FloatTypes>);

TYPED_TEST(SparseSegmentReproducibleTest, HasTheBitsOfTheDefinitionForEveryWidth) {
  std::mt19937 random(1);
  int range = 0;
  for (const int64_t width : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 127, 128, 200, 255, 256, 257, 511, 1023}) {
    SCOPED_TRACE("width " + std::to_string(width));
    range = (range + 1) % kWideRanges;
    Case<TypeParam>::Random(40, 7, width, 6, range, random).ExpectDefinition(kCombiners[width % 3]);
    Case<TypeParam>::Random(9, 7, width, 6, range, random)
        .ExpectDefinition(kCombiners[width % 2]);  // few uses of a row
  }
}

// 25,000 cases for each of the four types. Every case has its own setting, and a second order of its ids.
TYPED_TEST(SparseSegmentReproducibleTest, HasTheBitsOfTheDefinitionInRandomCases) {
  std::vector<Context> settings;
  ForEachSetting([&](const Context& ctx) { settings.push_back(Reproducible(ctx)); });
  std::mt19937 random(2);
#if defined(RAGGRAD_SANITIZED)
  constexpr int kCases = 2'500;
#else
  constexpr int kCases = 25'000;
#endif
  for (int i = 0; i < kCases; ++i) {
    const auto below = [&](int limit) { return 1 + static_cast<int>(random() % static_cast<uint32_t>(limit)); };
    const auto c = Case<TypeParam>::Random(below(24), below(6), i % 100 == 0 ? below(1023) : below(10), below(4),
                                           i % kWideRanges, random);
    const SegmentCombiner combiner = kCombiners[i % 3];
    const Array<TypeParam> want = c.Expected(combiner);
    const auto got = c.V2(combiner, settings[random() % settings.size()]);
    ASSERT_THAT(got, IsOk());
    ASSERT_TRUE(HoldsBits(got->output.view(), want)) << "case " << i;
    const auto shuffled = c.Shuffled(random).V2(combiner, settings[random() % settings.size()]);
    ASSERT_THAT(shuffled, IsOk());
    ASSERT_TRUE(HoldsBits(shuffled->output.view(), want)) << "case " << i << ", shuffled";
  }
}

// Numbers that lie on the grid already are not rounded to it. Both where it begins and with how many contributions.
TYPED_TEST(SparseSegmentReproducibleTest, RoundsWhatDoesNotLieOnTheGrid) {
  for (const int64_t rows : {1, 2, 3, 4, 7, 40}) {
    for (const int64_t width : {2, 5, 70}) {
      for (int depth = 0; depth < 60; ++depth) {
        SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(width) + ", depth " + std::to_string(depth));
        Case<TypeParam> c;
        c.table_rows = 2;
        c.grad = {reference::RowsBelowOne<TypeParam>(rows, width, depth), Shape{rows, width}};
        std::vector<int64_t> indices, segment_ids;
        for (const int64_t index : {0, 1}) {  // two uses of each row: then their magnitudes are found first
          for (int64_t row = 0; row < rows; ++row) {
            indices.push_back(index);
            segment_ids.push_back(row);
          }
          c.indices = indices;
          c.segment_ids = segment_ids;
          c.ExpectDefinition(SegmentCombiner::kSum);
        }
      }
    }
  }
}

TYPED_TEST(SparseSegmentReproducibleTest, SplitsAHotRow) {
  std::mt19937 random(3);
  for (const int64_t width : {1, 5, 100}) {
    SCOPED_TRACE("width " + std::to_string(width));
    Case<TypeParam>::Random(100'000 / width, 300, width, 1, 0, random).ExpectDefinition(SegmentCombiner::kMean);
    Case<TypeParam>::Random(100'000 / width, 300, width, 3, 1, random).ExpectDefinition(SegmentCombiner::kSum);
  }
  Case<TypeParam>::Random(40, 30, 40'000, 2, 0, random).ExpectDefinition(SegmentCombiner::kSqrtN);  // by columns, too
  Case<TypeParam>::Random(50'000, 60'000, 1, 2, 2, random).ExpectDefinition(SegmentCombiner::kMean);
}

// Shuffles ids of which few name a row often, so that both kinds of rows are large enough to be split. Other sums have
// other bits after the shuffle: the values are not too simple for this test.
TYPED_TEST(SparseSegmentReproducibleTest, HasTheSameBitsInEveryOrderOfTheIds) {
  std::mt19937 random(4);
  auto c = Case<TypeParam>::Random(60'000, 400, 9, 2'000, 0, random);
  for (size_t i = 0; i < c.indices.wide.size(); i += 3) c.indices.wide[i] = 7;
  c.indices = c.indices.wide;
  const auto with = [](Accumulation accumulation) {
    Context ctx;
    ctx.accumulation = accumulation;
    return ctx;
  };
  const Case<TypeParam> shuffled = c.Shuffled(random);
  for (const SegmentCombiner combiner : kCombiners) {
    const auto want = c.V2(combiner, Reproducible());
    ASSERT_THAT(want, IsOk());
    ForEachSetting([&](const Context& ctx) {
      const auto got = shuffled.V2(combiner, Reproducible(ctx));
      ASSERT_THAT(got, IsOk());
      EXPECT_TRUE(HoldsBits(got->output.view(), want->output.view()));
    });
    if constexpr (!kIsShortFloat<TypeParam>) {  // the last rounding to 16 bits hides most differences
      for (const Accumulation other : {Accumulation::kSequential, Accumulation::kFast}) {
        EXPECT_FALSE(
            HoldsBits(shuffled.V2(combiner, with(other))->output.view(), c.V2(combiner, with(other))->output.view()));
      }
    }
  }
}

TYPED_TEST(SparseSegmentReproducibleTest, EveryFormHasTheSameBits) {
  std::mt19937 random(5);
  using V = TypeParam;
  for (const int64_t n : {30, 20'000}) {
    const auto c = Case<V>::Random(n, 50, 6, 40, 0, random);
    const int64_t rows = c.table_rows;
    const auto plan = SegmentPlan::Make(c.index(), c.segment(), {.table_rows = rows, .num_segments = 50});
    ASSERT_THAT(plan, IsOk());
    for (const SegmentCombiner combiner : kCombiners) {
      const auto want = c.V2(combiner, Reproducible());
      ASSERT_THAT(want, IsOk());
      const IndexedSlicesView slices = {want->output.view(), want->sorted_unique_indices.view(), rows};
      const auto dense = ToDense(slices);
      ASSERT_THAT(dense, IsOk());
      ForEachSetting([&](const Context& setting) {
        const Context ctx = Reproducible(setting);
        const auto v1 =
            SparseSegmentGrad(combiner, c.grad, c.index(), c.segment(), TensorView::Scalar(c.table_rows), ctx);
        ASSERT_THAT(v1, IsOk());
        EXPECT_TRUE(HoldsBits(v1->view(), dense->view()));
        const auto planned = SparseSegmentGradV2(combiner, c.grad, *plan, ctx);
        ASSERT_THAT(planned, IsOk());
        EXPECT_TRUE(HoldsBits(planned->output.view(), want->output.view()));
        const auto padded = SparseSegmentGradV2Padded(combiner, c.grad, c.index(), c.segment(),
                                                      TensorView::Scalar(c.table_rows), rows, ctx);
        ASSERT_THAT(padded, IsOk());
        const int64_t unique = want->output.shape()[0];
        EXPECT_TRUE(HoldsBits(TensorView::Of(padded->output.template As<V>(), Shape{unique, 6}), want->output.view()));
      });
    }
  }
}

// Slices and updates: each id is its own contribution, and the fused step sees the bits of the stored gradient.
TYPED_TEST(SparseSegmentReproducibleTest, SlicesAndUpdatesSumReproducibly) {
  std::mt19937 random(6);
  using V = TypeParam;
  using A = decltype(reference::Widen(V{}));
  for (const int64_t n : {25, 30'000}) {
    auto c = Case<V>::Random(n, n, 5, 20, 0, random);
    std::iota(c.segment_ids.wide.begin(), c.segment_ids.wide.end(), int64_t{0});
    c.segment_ids = c.segment_ids.wide;
    const Array<V> want = c.Expected(SegmentCombiner::kSum);
    const IndexedSlicesView slices = {c.grad, c.index(), c.table_rows};
    const auto stepped = [&](const Context& ctx, bool fused) {
      std::vector<A> table(static_cast<size_t>(c.table_rows) * 5, A{1});
      const MutableTensorView view = {table.data(), kDTypeOf<A>, Shape{c.table_rows, 5}, Device{}};
      if (fused) {
        EXPECT_THAT(ApplyRows(slices, Sgd{0.5}, view, ctx), IsOk());
        return table;
      }
      const auto rows = Coalesce(slices, ctx);
      EXPECT_THAT(ApplyRows({rows->values.view(), rows->indices.view(), c.table_rows}, Sgd{0.5}, view, {}), IsOk());
      return table;
    };
    const std::vector<A> table = stepped(Reproducible(), /*fused=*/false);
    ForEachSetting([&](const Context& setting) {
      const Context ctx = Reproducible(setting);
      const auto coalesced = Coalesce(slices, ctx);
      ASSERT_THAT(coalesced, IsOk());
      EXPECT_TRUE(HoldsBits(coalesced->values.view(), want));
      const auto dense = ToDense(slices, ctx);
      ASSERT_THAT(dense, IsOk());
      const IndexedSlicesView rows = {coalesced->values.view(), coalesced->indices.view(), c.table_rows};
      EXPECT_TRUE(HoldsBits(dense->view(), ToDense(rows)->view()));
      EXPECT_TRUE(HoldsBits(TensorView::Vector<A>(stepped(ctx, /*fused=*/true)), Array<A>{table}));
    });
  }
}

TYPED_TEST(SparseSegmentReproducibleTest, EveryAllocationFailureIsReported) {
  std::mt19937 random(7);
  const auto c = Case<TypeParam>::Random(40'000, 300, 3, 2, 0, random);
  ForEachSetting([&](const Context& ctx) {
    ExpectEveryAllocationFailureIsReported(
        Reproducible(ctx), [&](const Context& failing) { return c.V2(SegmentCombiner::kMean, failing).status(); });
  });
}

// On top of the other modes: a factor and two magnitudes per segment, and the sums of the pieces of hot rows.
TYPED_TEST(SparseSegmentReproducibleTest, ExtraMemoryIsBounded) {
  std::mt19937 random(8);
  for (const int32_t rows : {1, 30'000}) {
    const auto c = Case<TypeParam>::Random(70'000, 400, 3, rows, 0, random);
    const auto peak = [&](const Context& ctx) {
      CountingAllocator allocator;
      Context counting = ctx;
      counting.allocator = &allocator;
      EXPECT_THAT(c.V2(SegmentCombiner::kMean, counting), IsOk());
      return allocator.peak_bytes();
    };
    ForEachSetting([&](const Context& ctx) {
      const size_t pieces = 2 * 4 * static_cast<size_t>(ctx.executor->num_workers());
      EXPECT_LE(peak(Reproducible(ctx)), peak(ctx) + 3 * sizeof(SumType<TypeParam>) * 400 + pieces * (3 * 16 + 120));
    });
  }
}

}  // namespace
}  // namespace raggrad
