// Bags of the GPU against their definition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "raggrad/ops/bags/bags.h"
#include "raggrad/ops/bags/test/bag_cases.h"
#include "raggrad/testing/on_device.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using testing::BagCase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::OnDevice;
using testing::ValuesOf;
using BagsCudaTest = testing::GpuTest;

// A case's operands in device memory.
template <class Id>
struct DeviceOperands {
  explicit DeviceOperands(const BagOperands& host) : ids(host.ids), offsets(host.offsets), weights(*host.weights) {
    operands = host;
    operands.ids = ids;
    operands.offsets = offsets;
    operands.weights = weights.view();
  }
  OnDevice ids, offsets, weights;
  BagOperands operands;
};

template <class Id>
void ExpectDefinition() {
  std::mt19937_64 random(1);
  for (const int64_t n : {0, 1, 7, 1000, 70'000}) {
    for (const int64_t bags : {0, 1, 5, 3000, 100'000}) {
      for (const bool last : {false, true}) {
        for (const bool padding : {false, true}) {
          const auto c = BagCase<Id>::Random(n, bags, last, padding, random);
          const DeviceOperands<Id> on_device(c.operands());
          const Result<Bags> got = CutIntoBags(on_device.operands);
          ASSERT_THAT(got, testing::IsOk());
          std::vector<Tensor> copies;
          copies.reserve(4);
          c.Expect(*got, [&](const TensorView& view) { return copies.emplace_back(testing::OnHost(view)).view(); });
        }
      }
    }
  }
}

TEST_F(BagsCudaTest, Int32FollowsTheDefinition) { ExpectDefinition<int32_t>(); }
TEST_F(BagsCudaTest, Int64FollowsTheDefinition) { ExpectDefinition<int64_t>(); }

TEST_F(BagsCudaTest, BadOffsetsMakeTheFirstSegmentInvalid) {
  const std::vector<int64_t> ids = {1, 2, 3};
  for (const std::vector<int64_t>& offsets : {std::vector<int64_t>{1, 2}, {0, 2, 1}, {0, 4}, {0, -1}}) {
    const OnDevice device_ids(TensorView::Vector<int64_t>(ids)), device_offsets(TensorView::Vector<int64_t>(offsets));
    const BagOperands operands = {.ids = device_ids, .offsets = device_offsets};
    const auto bags = CutIntoBags(operands);
    ASSERT_THAT(bags, testing::IsOk());
    EXPECT_EQ(ValuesOf<int32_t>(testing::OnHost(bags->segment_ids).view())[0], -1);
    EXPECT_THAT(CheckOffsets(operands).message(), HasSubstr("offsets["));
  }
}

TEST_F(BagsCudaTest, SpreadsOverPositions) {
  const std::vector<int32_t> ids = {3, 0, 3, 1}, offsets = {0, 2};
  const std::vector<double> values = {5, 6};
  const OnDevice device_ids(TensorView::Vector<int32_t>(ids)), device_offsets(TensorView::Vector<int32_t>(offsets));
  const OnDevice device_values(TensorView::Vector<double>(values));
  const auto bags = CutIntoBags({.ids = device_ids, .offsets = device_offsets, .padding_id = 3});
  ASSERT_THAT(bags, testing::IsOk());
  const auto spread = SpreadOverPositions(*bags, device_values, 4);
  ASSERT_THAT(spread, testing::IsOk());
  EXPECT_THAT(ValuesOf<double>(testing::OnHost(spread->view()).view()), ElementsAre(0, 5, 0, 6));
}

}  // namespace
}  // namespace raggrad
