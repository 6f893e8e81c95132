// Plans on a GPU: of segment ids and of bags, on several streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "raggrad/ops/sparse_segment/segment_plan.h"
#include "raggrad/ops/sparse_segment/test/test_batch.h"
#include "raggrad/testing/cuda_stream.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::sparse_segment {
namespace {

using ::raggrad::testing::BlockedStream;
using ::raggrad::testing::Blocker;
using ::raggrad::testing::CallDriver;
using ::raggrad::testing::CudaStream;
using ::raggrad::testing::ExpectSame;
using ::raggrad::testing::GpuTest;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::kStreamPerThread;
using ::raggrad::testing::OnHost;
using ::raggrad::testing::StatusIs;
using ::testing::HasSubstr;

TEST_F(GpuTest, SegmentPlanOnTheDevice) {
  const Batch batch = Batch::Zipf(20'000, 500, 300, 3);
  const Array<float> grad{Generator(2).HostileValues<float>(300 * 8), Shape{300, 8}};
  const OnDevice device_grad(grad);
  for (const DType index : kIndexTypes) {
    const auto plan = SegmentPlan::Make(batch.device_index(index), batch.device_segment(DType::kInt64),
                                        {.table_rows = 500, .num_segments = 300});
    ASSERT_THAT(plan, IsOk());
    EXPECT_TRUE(plan->ascending());
    for (const SegmentCombiner combiner : kCombiners) {
      const auto want =
          SparseSegmentGradV2(combiner, grad, batch.index(index), batch.segment(DType::kInt64), batch.dim0());
      ExpectSameRows(SparseSegmentGradV2(combiner, device_grad, *plan, Sequential()), want);
      EXPECT_EQ(plan->num_unique(), want->output.shape()[0]);
      const auto fast = SparseSegmentGradV2(combiner, device_grad, batch.device_index(index),
                                            batch.device_segment(DType::kInt64), batch.dim0());
      const auto fast_with_plan = SparseSegmentGradV2(combiner, device_grad, *plan);
      EXPECT_TRUE(HoldsBits(OnHost(fast_with_plan->output.view()).view(), OnHost(fast->output.view()).view()));
      ExpectSame(SparseSegmentGrad(combiner, device_grad, *plan, Sequential()),
                 SparseSegmentGrad(combiner, grad, batch.index(index), batch.segment(DType::kInt64), batch.dim0()));
    }
    EXPECT_THAT(plan->CheckMadeFrom(batch.device_index(DType::kInt32), batch.device_segment(DType::kInt32)), IsOk());
    Ids other = batch.indices;
    other.wide[12'345] ^= 1;
    other.wide[19'999] ^= 1;
    EXPECT_THAT(plan->CheckMadeFrom(OnDevice(other.As(DType::kInt64)), batch.device_segment(DType::kInt32)),
                StatusIs(Code::kInvalidArgument,
                         HasSubstr("[indices[12345]: expected " + std::to_string(batch.indices.wide[12'345]))));
    EXPECT_THAT(SparseSegmentGradV2(SegmentCombiner::kMean, grad, *plan),
                StatusIs(Code::kInvalidArgument, HasSubstr("different devices")));
    EXPECT_THAT(plan->CheckMadeFrom(batch.index(DType::kInt32), batch.segment(DType::kInt32)),
                StatusIs(Code::kInvalidArgument, HasSubstr("different devices")));
  }
  const auto no_plan = [](const TensorView& indices, const TensorView& segment_ids) {
    return SegmentPlan::Make(indices, segment_ids, {.table_rows = 499, .num_segments = 300}).status();
  };
  const Status got = no_plan(batch.device_index(DType::kInt32), batch.device_segment(DType::kInt32));
  EXPECT_EQ(got.message(), no_plan(batch.index(DType::kInt32), batch.segment(DType::kInt32)).message());
  EXPECT_EQ(SegmentPlan::Make(OnDevice(Array<int32_t>{{1, 0}}), OnDevice(Array<int32_t>{{1, 0}}), {2, 2})->ascending(),
            false);
  EXPECT_EQ(SegmentPlan::Make(OnDevice(Array<int32_t>{{}}), OnDevice(Array<int32_t>{{}}), {2, 2})->num_unique(), 0);
}

// The forward is queued before Make has read whether the ids are good; a call that waits does not disturb it.
TEST_F(GpuTest, WorkIsQueuedWhileAPlanIsMade) {
  const Batch batch = Batch::Zipf(20'000, 500, 300, 3);
  const Array<float> values{Generator(2).Values<float>(500 * 8), Shape{500, 8}};
  const OnDevice device_values(values);
  const auto make = [&](int64_t table_rows, Result<Tensor>& pooled) {
    const OnDevice rows(
        Array<float>{{values.values.begin(), values.values.begin() + table_rows * 8}, Shape{table_rows, 8}});
    return SegmentPlan::Make(
        batch.device_index(DType::kInt64), batch.device_segment(DType::kInt32),
        {.table_rows = table_rows, .num_segments = 300}, [&](const SegmentPlan& plan) {
          pooled = SparseSegment(SegmentCombiner::kMean, rows, plan);
          EXPECT_THAT(SegmentPlan::Make(OnDevice(Array<int32_t>{{1, 0}}), OnDevice(Array<int32_t>{{0, 1}}), {2, 2}),
                      IsOk());
        });
  };
  Result<Tensor> pooled = Tensor();
  const auto plan = make(500, pooled);
  ASSERT_THAT(plan, IsOk());
  ASSERT_THAT(pooled, IsOk());
  const auto without = SegmentPlan::Make(batch.device_index(DType::kInt64), batch.device_segment(DType::kInt32),
                                         {.table_rows = 500, .num_segments = 300});
  EXPECT_EQ(plan->num_unique(), without->num_unique());
  const auto pooled_later = SparseSegment(SegmentCombiner::kMean, device_values, *without);
  ExpectSame(pooled->view(), OnHost(pooled_later->view()).view());
  Result<Tensor> nothing = Tensor();
  EXPECT_THAT(make(499, nothing), StatusIs(Code::kInvalidArgument, HasSubstr("out of range [0, 499)")));
  EXPECT_THAT(SegmentPlan::Make(OnDevice(Array<int32_t>{{1, 0}}), OnDevice(Array<int32_t>{{1, 0}}), {2, 2},
                                [](const SegmentPlan&) {}),
              StatusIs(Code::kInvalidArgument, HasSubstr("segment ids are not increasing")));
}

// Bags of every size: none, one that has most ids, and gaps of thousands of empty ones.
TEST_F(GpuTest, PlansOfBags) {
  constexpr int64_t kRows = 700;
  for (const int64_t n : {1, 31, 2047, 2048, 2050, 50'000}) {
    for (const int64_t bags : {1, 2, 33, 5'000}) {
      Generator random(static_cast<uint64_t>(n * bags));
      std::vector<int64_t> starts = random.UniformIds<int64_t>(bags, n + 1);
      for (size_t b = 0; b < starts.size() / 2; ++b) starts[b] = n / 3;
      starts[0] = 0;
      std::ranges::sort(starts);
      const Array<int64_t> ids{random.ZipfIds<int64_t>(n, kRows)};
      const Array<int32_t> narrow{{starts.begin(), starts.end()}};
      const Array<int64_t> wide{starts};
      const Array<float> data{random.Values<float>(kRows * 5), Shape{kRows, 5}};
      const Array<float> grad{random.Values<float>(bags * 5), Shape{bags, 5}};
      const OnDevice device_ids(ids), device_data(data), device_grad(grad);
      const auto want = SegmentPlan::MakeOfBags(ids, narrow, kRows, true, [](const SegmentPlan&) {});
      for (const TensorView& offsets : {narrow.view(), wide.view()}) {
        for (const bool weighted : {false, true}) {
          Result<Tensor> pooled = Tensor();
          const auto plan =
              SegmentPlan::MakeOfBags(device_ids, OnDevice(offsets), kRows, weighted, [&](const SegmentPlan& made) {
                pooled = SparseSegment(SegmentCombiner::kMean, device_data, made, Sequential());
              });
          ASSERT_THAT(plan, IsOk());
          ExpectSame(pooled, SparseSegment(SegmentCombiner::kMean, data, *want));
          ExpectSameRows(SparseSegmentGradV2(SegmentCombiner::kMean, device_grad, *plan, Sequential()),
                         SparseSegmentGradV2(SegmentCombiner::kMean, grad, *want));
        }
      }
    }
  }
  const OnDevice ids(Array<int32_t>{{1, 2, 3}});
  for (const auto& bad :
       {Array<int32_t>{{1, 2}}, Array<int32_t>{{0, 2, 1}}, Array<int32_t>{{0, 4}}, Array<int32_t>{{-1}}}) {
    const auto plan = SegmentPlan::MakeOfBags(ids, OnDevice(bad), kRows, true, [](const SegmentPlan&) {});
    EXPECT_THAT(plan, StatusIs(Code::kInvalidArgument, HasSubstr("segment_ids")));
  }
}

// Make returns when the ids are known to be good. The GPU may still sort them then, which takes some 100 us for 4
// million. A gradient on another stream waits for that, and so does the number of rows.
TEST_F(GpuTest, SegmentPlanIsUsedOnAnotherStreamAtOnce) {
  constexpr int64_t kIds = 4'000'000, kRows = 3'000'000;
  const Batch batch = Batch::Zipf(kIds, kRows, 1'000, 3);
  const TensorView indices = batch.device_index(DType::kInt32), segment_ids = batch.device_segment(DType::kInt32);
  const OnDevice grad(Array<float>{Generator(2).Values<float>(1'000), Shape{1'000, 1}});
  const auto want = SparseSegmentGradV2(SegmentCombiner::kMean, grad, indices, segment_ids, batch.dim0());
  ASSERT_THAT(want, IsOk());
  const CudaStream owner, other;
  for (int k = 0; k < 5; ++k) {
    const auto plan = SegmentPlan::Make(indices, segment_ids, {kRows, 1'000}, owner.MakeContext());
    ASSERT_THAT(plan, IsOk());
    const auto rows = SparseSegmentGradV2(SegmentCombiner::kMean, grad, *plan, other.MakeContext());
    ASSERT_THAT(rows, IsOk());
    CallDriver("cuStreamSynchronize", other.handle());
    EXPECT_EQ(plan->num_unique(), want->output.shape()[0]);
    EXPECT_TRUE(HoldsBits(OnHost(rows->output.view()).view(), OnHost(want->output.view()).view()));
  }
}

// Reports come after plans were dropped. They must not reach the plans that are made next, which have other counts.
TEST_F(GpuTest, ReportsOfDroppedPlansReachNoOther) {
  const Batch large = Batch::Zipf(300'000, 200'000, 300, 3);
  const TensorView indices = large.device_index(DType::kInt32), segment_ids = large.device_segment(DType::kInt32);
  const CudaStream streams[2];
  for (int32_t k = 0; k < 200; ++k) {
    const int32_t unique = 1 + k % 7;
    Array<int32_t> few{std::vector<int32_t>(10)};
    for (int32_t i = 0; i < 10; ++i) few.values[i] = i % unique;
    const OnDevice device_few(few);
    const int64_t room = k % 3 == 0 ? 1'000 : 200'000;  // the former refuses the ids
    EXPECT_EQ(SegmentPlan::Make(indices, segment_ids, {room, 300}, streams[0].MakeContext()).ok(), room > 1'000);
    const auto plan = SegmentPlan::Make(device_few, device_few, {10, 10}, streams[1].MakeContext());
    ASSERT_THAT(plan, IsOk());
    EXPECT_EQ(plan->num_unique(), unique);
    CallDriver("cuStreamSynchronize", streams[0].handle());
    EXPECT_EQ(plan->num_unique(), unique);
  }
}

// Calls queued on another stream still find their plan when they run, though it was destroyed and its memory went to
// other plans meanwhile.
TEST_F(GpuTest, SegmentPlanOfAnotherStream) {
  constexpr int64_t kIds = 50'000;
  const Batch first = Batch::Zipf(kIds, 5'000, 300, 3), second = Batch::Zipf(kIds, 5'000, 300, 4);
  const Array<float> values{Generator(2).Values<float>(5'000 * 8), Shape{5'000, 8}};
  const Array<float> grad{Generator(2).Values<float>(300 * 8), Shape{300, 8}};
  const OnDevice device_values(values), device_grad(grad);
  const auto make = [](const Batch& batch, const Context& ctx) {
    return SegmentPlan::Make(batch.device_index(DType::kInt32), batch.device_segment(DType::kInt32),
                             {.table_rows = 5'000, .num_segments = 300}, ctx);
  };
  const auto pool = [&](const SegmentPlan& plan, const Context& ctx) {
    return SparseSegment(SegmentCombiner::kMean, device_values, plan, ctx);
  };
  const auto gradient = [&](const SegmentPlan& plan, const Context& ctx) {
    return SparseSegmentGradV2(SegmentCombiner::kMean, device_grad, plan, ctx);
  };
  const CudaStream owner;
  std::optional<Result<SegmentPlan>> plan = make(first, owner.MakeContext());
  ASSERT_THAT(*plan, IsOk());
  ASSERT_THAT(pool(**plan, {}), IsOk());  // the first call loads kernels, for which CUDA waits for all streams
  ASSERT_THAT(gradient(**plan, {}), IsOk());
  BlockedStream other;
  const Context ctx = other.MakeContext();
  const auto pooled = pool(**plan, ctx);
  const auto rows = gradient(**plan, ctx);
  EXPECT_TRUE(other.blocked()) << "a call has waited for its stream";
  plan.reset();
  const std::jthread releases([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    other.Release();
  });
  std::vector<Result<SegmentPlan>> others;
  for (int k = 0; k < 8; ++k) others.push_back(make(second, owner.MakeContext()));
  ASSERT_THAT(pooled, IsOk());
  ASSERT_THAT(rows, IsOk());
  CallDriver("cuStreamSynchronize", ctx.stream);
  ExpectSame(
      pooled->view(),
      SparseSegment(SegmentCombiner::kMean, values, first.index(DType::kInt32), first.segment(DType::kInt32))->view());
  const auto again = SparseSegmentGradV2(SegmentCombiner::kMean, device_grad, first.device_index(DType::kInt32),
                                         first.device_segment(DType::kInt32), first.dim0());
  ASSERT_THAT(again, IsOk());
  EXPECT_TRUE(HoldsBits(OnHost(rows->output.view()).view(), OnHost(again->output.view()).view()));
}

// The same on the per-thread streams of two threads, which have the same handle: the plan remembers both uses.
TEST_F(GpuTest, SegmentPlanOfPerThreadStreams) {
  constexpr int64_t kIds = 50'000;
  const Batch first = Batch::Zipf(kIds, 5'000, 300, 3), second = Batch::Zipf(kIds, 5'000, 300, 4);
  const Array<float> values{Generator(2).Values<float>(5'000 * 8), Shape{5'000, 8}};
  const OnDevice device_values(values);
  const Context per_thread = CudaStream::ContextOf(kStreamPerThread);
  const auto make = [](const Batch& batch, const Context& ctx) {
    return SegmentPlan::Make(batch.device_index(DType::kInt32), batch.device_segment(DType::kInt32),
                             {.table_rows = 5'000, .num_segments = 300}, ctx);
  };
  const CudaStream owner;
  std::optional<Result<SegmentPlan>> plan = make(first, owner.MakeContext());
  ASSERT_THAT(*plan, IsOk());
  const auto pool = [&] { return SparseSegment(SegmentCombiner::kMean, device_values, **plan, per_thread); };
  ASSERT_THAT(pool(), IsOk());  // the first call loads kernels, for which CUDA waits for all streams
  std::atomic<bool> queued = false, dropped = false;
  Result<Tensor> pooled = Status(Code::kUnavailable, "not called");
  std::thread other([&] {
    const float zero = 0;
    const OnDevice binds_this_thread(TensorView::Scalar(zero), per_thread);
    Blocker blocker(kStreamPerThread);
    pooled = pool();
    EXPECT_TRUE(blocker.blocked()) << "a call has waited for its stream";
    queued = true;
    queued.notify_all();
    dropped.wait(false);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  queued.wait(false);
  EXPECT_THAT(pool(), IsOk());
  plan.reset();
  dropped = true;
  dropped.notify_all();
  std::vector<Result<SegmentPlan>> others;
  for (int k = 0; k < 8; ++k) others.push_back(make(second, owner.MakeContext()));
  other.join();
  ASSERT_THAT(pooled, IsOk());
  ExpectSame(
      pooled->view(),
      SparseSegment(SegmentCombiner::kMean, values, first.index(DType::kInt32), first.segment(DType::kInt32))->view());
}

}  // namespace
}  // namespace raggrad::sparse_segment
