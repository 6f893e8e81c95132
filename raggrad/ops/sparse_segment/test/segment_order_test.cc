#include "raggrad/ops/sparse_segment/segment_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <numeric>
#include <vector>

#include "raggrad/ops/sparse_segment/segment_pooling.h"
#include "raggrad/ops/sparse_segment/test/test_ids.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::sparse_segment::Ids;
using ::raggrad::sparse_segment::kIndexTypes;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::Generator;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> Numbers(const Tensor& tensor) {
  return {tensor.As<int32_t>(), tensor.As<int32_t>() + tensor.shape()[0]};
}

// The obvious way: positions in range, sorted stably.
std::vector<int32_t> Expected(const std::vector<int64_t>& ids, int64_t num_segments, bool ordered) {
  std::vector<int32_t> positions;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < num_segments) positions.push_back(static_cast<int32_t>(i));
  }
  const auto id = [&](int32_t i) { return ids[static_cast<size_t>(i)]; };
  if (ordered)
    std::stable_sort(positions.begin(), positions.end(), [&](int32_t a, int32_t b) { return id(a) < id(b); });
  return positions;
}

void ExpectOrder(const std::vector<int64_t>& ids, int64_t num_segments) {
  const Ids arrays(ids);
  for (const bool ordered : {true, false}) {
    const std::vector<int32_t> expected = Expected(ids, num_segments, ordered);
    std::vector<int32_t> all(ids.size());
    std::iota(all.begin(), all.end(), 0);
    for (const DType type : kIndexTypes) {
      ForEachSetting([&](const Context& ctx) {
        const auto order = ordered ? OrderBySegment(arrays.As(type), num_segments, OutOfRange::kDrop, ctx)
                                   : KeepInRange(arrays.As(type), num_segments, ctx);
        ASSERT_THAT(order, IsOk());
        ASSERT_EQ(order->has_value(), expected != all);
        if (!order->has_value()) return;
        const SegmentOrder& found = **order;
        EXPECT_EQ(Numbers(found.positions), expected);
        std::vector<int32_t> segments;
        for (const int32_t i : expected) segments.push_back(static_cast<int32_t>(ids[static_cast<size_t>(i)]));
        EXPECT_EQ(Numbers(found.segment_ids), segments);
      });
    }
  }
}

TEST(SegmentOrder, SmallCases) {
  ExpectOrder({}, 0);
  ExpectOrder({}, 5);
  ExpectOrder({0}, 1);
  ExpectOrder({0}, 0);
  ExpectOrder({2, 0, 2, 1}, 3);
  ExpectOrder({0, 0, 1, 4}, 5);
  ExpectOrder({0, 1, 5, 5}, 5);
  ExpectOrder({-1, 0, 1, 1}, 5);
  ExpectOrder({7, -3, INT32_MAX, INT32_MIN}, 5);
  ExpectOrder({3, 9, 1, -1, 3, 0}, 4);
}

TEST(SegmentOrder, ManyIdsOverSeveralWorkers) {
  for (const int64_t num_segments : {int64_t{1}, int64_t{100}, int64_t{1} << 20, int64_t{INT32_MAX}}) {
    Generator random(static_cast<uint64_t>(num_segments));
    std::vector<int64_t> ids = random.UniformIds<int64_t>(200'003, num_segments);
    ExpectOrder(ids, num_segments);
    std::vector<int64_t> ascending = ids;
    std::sort(ascending.begin(), ascending.end());
    ExpectOrder(ascending, num_segments);
    for (size_t i = 0; i < ids.size(); i += 3) ids[i] = i % 2 == 0 ? -1 : INT32_MAX;  // every third is out of range
    ExpectOrder(ids, num_segments);
    std::fill(ascending.end() - 50'000, ascending.end(), -1);  // as padding
    ExpectOrder(ascending, num_segments);
  }
}

// One id falls, where two chunks meet or anywhere else.
TEST(SegmentOrder, OneFallingId) {
  for (const size_t place : {size_t{1}, size_t{50'000}, size_t{99'999}}) {
    std::vector<int64_t> ids(100'000, 7);
    ids[place] = 6;
    ExpectOrder(ids, 9);
  }
  std::vector<int64_t> steps(100'000);
  std::iota(steps.rbegin(), steps.rend(), 0);
  ExpectOrder(steps, 100'000);
}

TEST(SegmentOrder, IdsOfMoreThan32BitsAreOutOfRange) {
  const std::vector<int64_t> ids = {1, int64_t{1} << 32, INT64_MIN, 0, INT64_MAX};
  const auto order = OrderBySegment(TensorView::Vector(std::span<const int64_t>(ids)), 2, OutOfRange::kDrop);
  ASSERT_THAT(order, IsOk());
  EXPECT_THAT(Numbers((*order)->positions), ElementsAre(3, 0));
}

TEST(SegmentOrder, ErrorsNameTheFirstId) {
  std::vector<int64_t> ids(100'000, 3);
  ids[70'000] = 5;
  ids[90'000] = -1;
  const Ids arrays(ids);
  for (const DType type : kIndexTypes) {
    ForEachSetting([&](const Context& ctx) {
      EXPECT_THAT(OrderBySegment(arrays.As(type), 5, OutOfRange::kError, ctx),
                  StatusIs(Code::kInvalidArgument, HasSubstr("[segment_ids[70000]: expected 0 to 4, got 5]")));
    });
  }
  EXPECT_THAT(OrderBySegment(arrays.As(DType::kInt32), 0, OutOfRange::kError),
              StatusIs(Code::kInvalidArgument, HasSubstr("[segment_ids[0]: expected none, as num_segments is 0")));
  EXPECT_THAT(OrderBySegment(arrays.As(DType::kInt32), -1, OutOfRange::kDrop),
              StatusIs(Code::kInvalidArgument, HasSubstr("num_segments")));
  EXPECT_THAT(OrderBySegment(arrays.As(DType::kInt32), int64_t{1} << 31, OutOfRange::kDrop),
              StatusIs(Code::kInvalidArgument, HasSubstr("num_segments")));
  const float number = 0;
  EXPECT_THAT(OrderBySegment(TensorView::Of(&number, Shape{1}), 1, OutOfRange::kDrop),
              StatusIs(Code::kInvalidArgument, HasSubstr("[segment_ids: expected int32 or int64, got float32]")));
  const int32_t id = 0;
  EXPECT_THAT(KeepInRange(TensorView::Of(&id, Shape{1, 1}), 1),
              StatusIs(Code::kInvalidArgument, HasSubstr("expected 1 dimension")));
}

TEST(SegmentOrder, EveryAllocationFailureIsReported) {
  const Ids ids(Generator(1).UniformIds<int64_t>(1000, 20));
  ExpectEveryAllocationFailureIsReported({}, [&](const Context& ctx) {
    return OrderBySegment(ids.As(DType::kInt32), 10, OutOfRange::kDrop, ctx).status();
  });
}

TEST(SegmentOrder, TakesValuesOfEverySize) {
  const std::vector<int32_t> positions = {2, 0, 2};
  const TensorView places = TensorView::Vector(std::span<const int32_t>(positions));
  const auto expect = [&](const auto& values) {
    using Value = std::remove_cvref_t<decltype(values[0])>;
    const Result<Tensor> taken = TakeAt(TensorView::Vector(std::span<const Value>(values)), places);
    ASSERT_THAT(taken, IsOk());
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(taken->As<Value>()[i], values[static_cast<size_t>(positions[i])]);
  };
  expect(std::vector<int8_t>{1, 2, 3});
  expect(std::vector<int16_t>{1, 2, 3});
  expect(std::vector<float>{1, 2, 3});
  expect(std::vector<int64_t>{1, 2, 3});
}

TEST(SegmentPooling, NamesOfCombiners) {
  EXPECT_EQ(*CombinerByName("sum"), SegmentCombiner::kSum);
  EXPECT_EQ(*CombinerByName("mean"), SegmentCombiner::kMean);
  EXPECT_EQ(*CombinerByName("sqrtn"), SegmentCombiner::kSqrtN);
  EXPECT_THAT(CombinerByName("max", "mode"),
              StatusIs(Code::kInvalidArgument, "no such mode [mode: expected 'sum', 'mean' or 'sqrtn', got 'max']"));
}

TEST(Context, NamesOfAccumulations) {
  EXPECT_EQ(*AccumulationByName("sequential"), Accumulation::kSequential);
  EXPECT_EQ(*AccumulationByName("fast"), Accumulation::kFast);
  EXPECT_EQ(*AccumulationByName("reproducible"), Accumulation::kReproducible);
  EXPECT_THAT(AccumulationByName("Fast"), StatusIs(Code::kInvalidArgument, HasSubstr("got 'Fast'")));
}

}  // namespace
}  // namespace raggrad
