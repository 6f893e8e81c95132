#include "raggrad/ops/sparse_segment/segment_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>

#include "raggrad/ops/sparse_segment/test/test_ids.h"
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
using ::raggrad::sparse_segment::kIndexTypes;
using ::raggrad::testing::Array;
using ::raggrad::testing::CountingAllocator;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::Generator;
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsInvalid;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::kCombiners;
using ::raggrad::testing::StatusIs;
using ::testing::HasSubstr;

struct Batch {
  Ids indices;
  Ids segment_ids;
  SegmentPlan::Sizes sizes;

  static Batch Random(int64_t n, const SegmentPlan::Sizes& sizes, bool ascending, uint64_t seed) {
    Generator random(seed);
    std::vector<int64_t> segment_ids = random.UniformIds<int64_t>(n, sizes.num_segments);
    if (ascending) std::sort(segment_ids.begin(), segment_ids.end());
    return {random.ZipfIds<int64_t>(n, sizes.table_rows), segment_ids, sizes};
  }
  Result<SegmentPlan> Plan(const Context& ctx = {}, DType index = DType::kInt32, DType segment = DType::kInt64) const {
    return SegmentPlan::Make(indices.As(index), segment_ids.As(segment), sizes, ctx);
  }
  TensorView index(DType dtype = DType::kInt32) const { return indices.As(dtype); }
  TensorView segment() const { return segment_ids.As(DType::kInt64); }
};

template <class T>
class SegmentPlanTyped : public ::testing::Test {};
TYPED_TEST_SUITE(SegmentPlanTyped, GtestTypes<FloatTypes>);

// Every function gives the same bits with and without a plan.
TYPED_TEST(SegmentPlanTyped, SameBitsAsWithoutAPlan) {
  for (const int64_t n : {1, 7, 300, 70'000}) {
    const Batch batch =
        Batch::Random(n, {.table_rows = 1 + n / 2, .num_segments = 1 + n / 9}, n != 7, static_cast<uint64_t>(n));
    const int32_t rows = static_cast<int32_t>(batch.sizes.table_rows);
    Generator random(5);
    const Array<TypeParam> grad{random.HostileValues<TypeParam>(batch.sizes.num_segments * 5),
                                Shape{batch.sizes.num_segments, 5}};
    const Array<TypeParam> data{random.HostileValues<TypeParam>(rows * 5), Shape{rows, 5}};
    ForEachSetting([&](const Context& ctx) {
      for (const DType index : kIndexTypes) {
        const Result<SegmentPlan> plan = batch.Plan(ctx, index);
        ASSERT_THAT(plan, IsOk());
        EXPECT_EQ(plan->num_ids(), n);
        for (const SegmentCombiner combiner : kCombiners) {
          const auto want =
              SparseSegmentGradV2(combiner, grad, batch.index(index), batch.segment(), TensorView::Scalar(rows), ctx);
          const auto got = SparseSegmentGradV2(combiner, grad, *plan, ctx);
          ASSERT_THAT(got, IsOk());
          EXPECT_TRUE(HoldsBits(got->output.view(), want->output.view()));
          EXPECT_TRUE(HoldsBits(got->sorted_unique_indices.view(), want->sorted_unique_indices.view()));
          EXPECT_EQ(plan->num_unique(), got->output.shape()[0]);
          const auto dense = SparseSegmentGrad(combiner, grad, *plan, ctx);
          const auto want_dense =
              SparseSegmentGrad(combiner, grad, batch.index(index), batch.segment(), TensorView::Scalar(rows), ctx);
          ASSERT_THAT(dense, IsOk());
          EXPECT_TRUE(HoldsBits(dense->view(), want_dense->view()));
          const auto pooled = SparseSegment(combiner, data, *plan, ctx);
          if (!plan->ascending()) {
            EXPECT_THAT(pooled, IsInvalid("[plan: expected one made from ascending segment_ids]"));
            continue;
          }
          const auto want_pooled = SparseSegmentWithNumSegments(combiner, data, batch.index(index), batch.segment(),
                                                                TensorView::Scalar(batch.sizes.num_segments), ctx);
          ASSERT_THAT(pooled, IsOk());
          EXPECT_TRUE(HoldsBits(pooled->view(), want_pooled->view()));
        }
      }
    });
  }
}

TEST(SegmentPlan, IntegersArePooledToo) {
  const Batch batch{std::vector<int64_t>{2, 0, 2}, std::vector<int64_t>{0, 0, 2}, {.table_rows = 3, .num_segments = 4}};
  const auto plan = batch.Plan();
  const Array<int8_t> data{{100, 1, 27}};
  const auto got = SparseSegment(SegmentCombiner::kSum, data, *plan);
  ASSERT_THAT(got, IsOk());
  EXPECT_TRUE(HoldsBits(got->view(), Array<int8_t>{{127, 0, 27, 0}}));
  EXPECT_THAT(SparseSegment(SegmentCombiner::kMean, data, *plan), IsInvalid("data has dtype int8"));
}

TEST(SegmentPlan, NoIds) {
  const Batch batch{std::vector<int64_t>{}, std::vector<int64_t>{}, {.table_rows = 3, .num_segments = 2}};
  const auto plan = batch.Plan();
  ASSERT_THAT(plan, IsOk());
  const Array<float> grad{{1, 2}, Shape{2, 1}};
  const auto rows = SparseSegmentGradV2(SegmentCombiner::kMean, grad, *plan);
  ASSERT_THAT(rows, IsOk());
  EXPECT_EQ(rows->output.shape(), (Shape{0, 1}));
  EXPECT_TRUE(
      HoldsBits(SparseSegmentGrad(SegmentCombiner::kMean, grad, *plan)->view(), Array<float>{{0, 0, 0}, Shape{3, 1}}));
  EXPECT_TRUE(HoldsBits(SparseSegment(SegmentCombiner::kMean, Array<float>{{1, 2, 3}, Shape{3, 1}}, *plan)->view(),
                        Array<float>{{0, 0}, Shape{2, 1}}));
}

TEST(SegmentPlan, OtherIdsAreFound) {
  const int64_t n = 50'000;
  const Batch batch = Batch::Random(n, {.table_rows = 1000, .num_segments = 300}, false, 3);
  ForEachSetting([&](const Context& ctx) {
    const auto plan = batch.Plan(ctx);
    EXPECT_THAT(plan->CheckMadeFrom(batch.index(), batch.segment(), ctx), IsOk());
    EXPECT_THAT(plan->CheckMadeFrom(batch.index(DType::kInt64), batch.segment_ids.As(DType::kInt32), ctx), IsOk());
    Batch other = batch;
    other.indices.narrow[31'234] ^= 1;
    other.indices.narrow[49'000] ^= 1;
    EXPECT_THAT(plan->CheckMadeFrom(other.index(), batch.segment(), ctx), IsInvalid("[indices[31234]: expected "));
    other.segment_ids.wide[n - 1] += int64_t{1} << 32;
    EXPECT_THAT(plan->CheckMadeFrom(batch.index(), other.segment(), ctx), IsInvalid("[segment_ids[49999]: expected "));
    const Batch fewer = Batch::Random(n - 1, batch.sizes, false, 3);
    EXPECT_THAT(plan->CheckMadeFrom(fewer.index(), fewer.segment(), ctx),
                IsInvalid("[indices: expected 50000 elements, got 49999]"));
    EXPECT_THAT(plan->CheckMadeFrom(batch.index(), fewer.segment(), ctx), IsInvalid("should have same size"));
  });
}

TEST(SegmentPlan, OtherSizesAreErrors) {
  const auto plan = Batch::Random(20, {.table_rows = 10, .num_segments = 4}, true, 1).Plan();
  const Array<float> five{std::vector<float>(5), Shape{5, 1}}, scalar{{1}, Shape{}};
  EXPECT_THAT(SparseSegmentGradV2(SegmentCombiner::kSum, five, *plan),
              IsInvalid("[grad: expected 4 rows, the plan's segments, got shape [5,1]]"));
  EXPECT_THAT(SparseSegmentGrad(SegmentCombiner::kMean, scalar, *plan), IsInvalid("expected 4 rows"));
  EXPECT_THAT(SparseSegment(SegmentCombiner::kMean, five, *plan),
              IsInvalid("[data: expected 10 rows, the plan's rows, got shape [5,1]]"));
  EXPECT_THAT(SparseSegmentGradV2(SegmentCombiner::kSum, Array<int32_t>{{1, 2, 3, 4}}, *plan),
              IsInvalid("grad has dtype int32"));
}

TEST(SegmentPlan, BadIdsAreNamed) {
  const auto make = [](std::vector<int64_t> indices, std::vector<int64_t> segment_ids, SegmentPlan::Sizes sizes) {
    return SegmentPlan::Make(TensorView::Vector<int64_t>(indices), TensorView::Vector<int64_t>(segment_ids), sizes);
  };
  EXPECT_THAT(make({0, 5}, {0, 0}, {5, 1}), IsInvalid("Index 5 out of range [0, 5). [indices[1]]"));
  EXPECT_THAT(make({0, -1}, {0, 0}, {5, 1}), IsInvalid("Index -1 out of range [0, 5). [indices[1]]"));
  EXPECT_THAT(make({0, 1, 2}, {0, -3, 0}, {5, 1}), IsInvalid("Segment id -3 out of range [0, 1). [segment_ids[1]]"));
  EXPECT_THAT(make({0}, {7}, {5, 7}), IsInvalid("[segment_ids[0]: expected less than 7"));
  EXPECT_THAT(make({0}, {0}, {0, 1}), IsInvalid("Index 0 out of range [0, 0)"));
  EXPECT_THAT(make({0}, {0}, {1, 0}), IsInvalid("[segment_ids[0]"));
  EXPECT_THAT(make({}, {}, {-1, 0}), IsInvalid("[table_rows: expected 0 to 4294967296 rows, got -1]"));
  EXPECT_THAT(make({}, {}, {(int64_t{1} << 32) + 1, 0}),
              IsInvalid("[table_rows: expected 0 to 4294967296 rows, got 4294967297]"));
  EXPECT_THAT(make({}, {}, {0, int64_t{1} << 31}),
              IsInvalid("[num_segments: expected 0 to 2147483647, got 2147483648]"));
  EXPECT_THAT(SegmentPlan::Make(Array<float>{{0}}, Array<int32_t>{{0}}, {1, 1}),
              IsInvalid("indices has dtype float32"));
  EXPECT_THAT(SegmentPlan::Make(Array<int32_t>{{0}}, Array<int8_t>{{0}}, {1, 1}),
              IsInvalid("segment_ids has dtype int8"));
  EXPECT_THAT(SegmentPlan::Make(Array<int32_t>{{0}, Shape{1, 1}}, Array<int32_t>{{0}}, {1, 1}), IsInvalid("a vector"));
  EXPECT_THAT(SegmentPlan::Make(TensorView::Of<int32_t>(nullptr, Shape{3}), Array<int32_t>{{0, 0, 0}}, {1, 1}),
              IsInvalid("a null pointer"));
}

// As many rows as 32 bits can name. Their indices do not fit the 32-bit copies that smaller plans keep.
TEST(SegmentPlan, TablesOfUpTo2To32Rows) {
  constexpr int64_t kRows = int64_t{1} << 32;
  const Array<int64_t> indices{{kRows - 1, 7, kRows - 1, int64_t{1} << 31}};
  const Array<int32_t> segment_ids{{0, 0, 1, 1}};
  const Array<float> grad{{1, 2, 30, 40}, Shape{2, 2}};
  const auto plan = SegmentPlan::Make(indices, segment_ids, {.table_rows = kRows, .num_segments = 2});
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(plan->CheckMadeFrom(indices, segment_ids), IsOk());
  const Array<int64_t> other{{kRows - 1, 7, -1, int64_t{1} << 31}};
  EXPECT_THAT(plan->CheckMadeFrom(other, segment_ids), IsInvalid("[indices[2]: expected 4294967295, got -1]"));
  const auto got = SparseSegmentGradV2(SegmentCombiner::kMean, grad, *plan);
  ASSERT_THAT(got, IsOk());
  EXPECT_TRUE(HoldsBits(got->output.view(), Array<float>{{0.5F, 1, 15, 20, 15.5F, 21}, Shape{3, 2}}));
  EXPECT_TRUE(HoldsBits(got->sorted_unique_indices.view(), Array<int64_t>{{7, int64_t{1} << 31, kRows - 1}}));
}

// A table of one byte per row shows that indices reach the forward whole. Its 2 GiB of zeros are never touched.
TEST(SegmentPlan, ForwardsOfTablesBeyond2To31Rows) {
  constexpr int64_t kRows = (int64_t{1} << 31) + 2;
  const std::unique_ptr<int8_t, decltype(&std::free)> table(static_cast<int8_t*>(std::calloc(kRows, 1)), &std::free);
  if (table == nullptr) GTEST_SKIP() << "no 2 GiB of address space";
  table.get()[kRows - 1] = 5;
  const Array<int64_t> indices{{kRows - 1, 0}};
  const Array<int32_t> segment_ids{{0, 0}};
  const auto plan = SegmentPlan::Make(indices, segment_ids, {.table_rows = kRows, .num_segments = 1});
  ASSERT_THAT(plan, IsOk());
  const auto pooled = SparseSegment(SegmentCombiner::kSum, TensorView::Of(table.get(), Shape{kRows}), *plan);
  ASSERT_THAT(pooled, IsOk());
  EXPECT_TRUE(HoldsBits(pooled->view(), Array<int8_t>{{5}}));
}

TEST(SegmentPlan, OneForManyThreads) {
  const Batch batch = Batch::Random(40'000, {.table_rows = 500, .num_segments = 600}, true, 9);
  const auto plan = batch.Plan();
  const Array<float> grad{Generator(2).HostileValues<float>(600 * 3), Shape{600, 3}};
  const auto want = SparseSegmentGradV2(SegmentCombiner::kSqrtN, grad, *plan);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const auto got = SparseSegmentGradV2(SegmentCombiner::kSqrtN, grad, *plan);
      EXPECT_TRUE(HoldsBits(got->output.view(), want->output.view()));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SegmentPlan, MemoryIsWhatTheHeaderSays) {
  const int64_t n = 100'000;
  const Batch batch = Batch::Random(n, {.table_rows = 5000, .num_segments = 2000}, true, 4);
  CountingAllocator allocator;
  Context ctx;
  ctx.allocator = &allocator;
  ctx.executor = &SerialExecutor();
  const auto plan = batch.Plan(ctx);
  EXPECT_LE(allocator.live_bytes(), static_cast<size_t>(24 * n + 8 * (plan->num_unique() + 1) + 8 * 2000));
  EXPECT_LE(allocator.peak_bytes(), static_cast<size_t>(24 * n + 8 * (plan->num_unique() + 1) + 8 * 2000 + (16 << 10)));
}

TEST(SegmentPlan, EveryAllocationFailureIsReported) {
  const Batch batch = Batch::Random(30'000, {.table_rows = 5000, .num_segments = 2000}, true, 4);
  const Array<float> grad{Generator(2).HostileValues<float>(2000), Shape{2000, 1}};
  ExpectEveryAllocationFailureIsReported({}, [&](const Context& ctx) { return batch.Plan(ctx).status(); });
  const auto plan = batch.Plan();
  ExpectEveryAllocationFailureIsReported(
      {}, [&](const Context& ctx) { return SparseSegmentGradV2(SegmentCombiner::kMean, grad, *plan, ctx).status(); });
}

// In host memory MakeWithoutWaiting is Make with a report, and a plan whose number of rows is not told.
TEST(SegmentPlanMeanwhile, IsCalledOnceWithAPlanOfGoodIds) {
  const Batch batch = Batch::Random(500, {.table_rows = 40, .num_segments = 30}, /*ascending=*/true, 3);
  const Array<float> data{Generator(5).Values<float>(40 * 5), Shape{40, 5}};
  const auto make = [](const TensorView& indices, const TensorView& segment_ids, const SegmentPlan::Sizes& sizes,
                       const auto& meanwhile) {
    int calls = 0;
    auto plan = SegmentPlan::Make(indices, segment_ids, sizes, [&](const SegmentPlan& made) {
      ++calls;
      meanwhile(made);
    });
    EXPECT_EQ(calls, plan.ok() ? 1 : 0);
    return plan;
  };
  const auto ignore = [](const SegmentPlan&) {};
  Result<Tensor> pooled = Tensor();
  const auto plan = make(batch.index(), batch.segment(), batch.sizes,
                         [&](const SegmentPlan& made) { pooled = SparseSegment(SegmentCombiner::kMean, data, made); });
  ASSERT_THAT(plan, IsOk());
  ASSERT_THAT(pooled, IsOk());
  EXPECT_TRUE(HoldsBits(pooled->view(), SparseSegment(SegmentCombiner::kMean, data, *batch.Plan())->view()));
  EXPECT_EQ(plan->num_unique(), batch.Plan()->num_unique());

  const Array<int32_t> two{{1, 0}}, none{{}};
  EXPECT_THAT(make(none, none, {2, 2}, ignore), IsOk());
  EXPECT_THAT(make(two, two, {2, 2}, ignore), IsInvalid("segment ids are not increasing"));
  EXPECT_THAT(make(two, Array<int32_t>{{0, 1}}, {1, 2}, ignore), IsInvalid("[indices[0]]"));
  EXPECT_THAT(make(two, Array<int32_t>{{0, 1}}, {0, 2}, ignore), IsInvalid("[indices[0]]"));
}

TEST(SegmentPlanOfBags, IsThatOfTheirSegmentIds) {
  const Array<int64_t> ids{{5, 1, 1, 7, 0}};
  const Array<int32_t> offsets{{0, 0, 3, 4, 5}};
  const Array<float> data{Generator(5).Values<float>(8 * 3), Shape{8, 3}};
  const Array<float> grad{Generator(6).Values<float>(5 * 3), Shape{5, 3}};
  Result<Tensor> pooled = Tensor();
  const auto plan = SegmentPlan::MakeOfBags(ids, offsets, 8, /*weighted=*/false, [&](const SegmentPlan& made) {
    pooled = SparseSegment(SegmentCombiner::kMean, data, made);
  });
  const auto want = SegmentPlan::Make(ids, Array<int32_t>{{1, 1, 1, 2, 3}}, {8, 5});
  ASSERT_THAT(plan, IsOk());
  EXPECT_TRUE(HoldsBits(pooled->view(), SparseSegment(SegmentCombiner::kMean, data, *want)->view()));
  EXPECT_TRUE(HoldsBits(SparseSegmentGrad(SegmentCombiner::kMean, grad, *plan)->view(),
                        SparseSegmentGrad(SegmentCombiner::kMean, grad, *want)->view()));
  const Array<float> weights{{1, 2, 3, 4, 5}};
  EXPECT_THAT(SparseSegmentGrad({SegmentCombiner::kSum, {weights, WeightDivisor::kCount}}, grad, *plan),
              IsInvalid("the plan is for calls without weights"));

  const auto make = [&](const TensorView& starts) {
    return SegmentPlan::MakeOfBags(ids, starts, 8, true, [](const SegmentPlan&) {});
  };
  EXPECT_THAT(make(Array<int32_t>{{1, 2}}), IsInvalid("[offsets[0]: expected 0, got 1]"));
  EXPECT_THAT(make(Array<int32_t>{{0, 3, 2}}), IsInvalid("[offsets[2]: expected at least 3"));
  EXPECT_THAT(make(Array<int32_t>{{0, 6}}), IsInvalid("[offsets[1]: expected at most 5"));
  EXPECT_THAT(make(Array<float>{{0}}), IsInvalid("[offsets: expected int32 or int64, got float"));
  EXPECT_EQ(make(Array<int32_t>{{}})->num_ids(), 0);
}

TEST(SegmentPlanWithoutWaiting, IsMakeOnACpu) {
  const Array<int32_t> indices{{2, 0, 2}}, segment_ids{{0, 1, 1}};
  const Array<float> grad{{1, 10}, Shape{2, 1}};
  const auto plan = SegmentPlan::MakeWithoutWaiting(indices, segment_ids, {.table_rows = 3, .num_segments = 2});
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->num_unique(), -1);
  const auto rows = CheckPadded(plan->report());
  ASSERT_THAT(rows, IsOk());
  EXPECT_EQ(*rows, 2);
  EXPECT_TRUE(
      HoldsBits(SparseSegmentGrad(SegmentCombiner::kSum, grad, *plan)->view(), Array<float>{{10, 0, 11}, Shape{3, 1}}));
  EXPECT_THAT(SparseSegmentGradV2(SegmentCombiner::kSum, grad, *plan),
              StatusIs(Code::kInvalidArgument, HasSubstr("the number of rows is not known yet")));
  const auto none =
      SegmentPlan::MakeWithoutWaiting(Array<int32_t>{{}}, Array<int32_t>{{}}, {.table_rows = 0, .num_segments = 0});
  ASSERT_THAT(none, IsOk());
  EXPECT_EQ(*CheckPadded(none->report()), 0);
}

TEST(SegmentPlanWithoutWaiting, RefusesWhatNobodyCouldCheckLater) {
  const Array<int32_t> indices{{1, 0}}, segment_ids{{1, 0}};
  const auto refused = [](const char* text) { return StatusIs(Code::kInvalidArgument, HasSubstr(text)); };
  EXPECT_THAT(SegmentPlan::MakeWithoutWaiting(indices, segment_ids, {.table_rows = 2, .num_segments = 2}),
              refused("segment ids are not increasing"));
  EXPECT_THAT(SegmentPlan::MakeWithoutWaiting(indices, indices, {.table_rows = 0, .num_segments = 2}),
              refused("got 2 for 0 rows and 2 segments"));
  EXPECT_THAT(SegmentPlan::MakeWithoutWaiting(indices, Array<int32_t>{{0, 0}}, {.table_rows = 1, .num_segments = 1}),
              refused("Index 1 out of range"));
}

}  // namespace
}  // namespace raggrad
