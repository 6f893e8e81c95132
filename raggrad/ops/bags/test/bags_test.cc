// Bags of the CPU against their definition: the last bag that starts at or before an id.
#include "raggrad/ops/bags/bags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "raggrad/ops/bags/test/bag_cases.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using testing::BagCase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ValuesOf;

template <class T>
class BagsTest : public ::testing::Test {};
using IdTypes = ::testing::Types<int32_t, int64_t>;
TYPED_TEST_SUITE(BagsTest, IdTypes);

TYPED_TEST(BagsTest, FollowsTheDefinition) {
  std::mt19937_64 random(1);
  for (const int64_t n : {0, 1, 7, 1000, 70'000}) {
    for (const int64_t bags : {0, 1, 5, 3000}) {
      for (const bool last : {false, true}) {
        for (const bool padding : {false, true}) {
          for (const int threads : {1, 2, 7}) {
            const auto c = BagCase<TypeParam>::Random(n, bags, last, padding, random);
            Context ctx;
            ctx.executor = &testing::SharedExecutor(threads);
            const Result<Bags> got = CutIntoBags(c.operands(), ctx);
            ASSERT_THAT(got, testing::IsOk());
            c.Expect(*got, [](const TensorView& view) { return view; });
          }
        }
      }
    }
  }
}

TYPED_TEST(BagsTest, LeavesNothingOutWithoutPaddingAmongTheIds) {
  const std::vector<TypeParam> ids = {4, 5, 6}, offsets = {0, 0, 2};
  const auto bags = CutIntoBags({.ids = TensorView::Vector<TypeParam>(ids),
                                 .offsets = TensorView::Vector<TypeParam>(offsets),

                                 .padding_id = 9});
  ASSERT_THAT(bags, testing::IsOk());
  EXPECT_EQ(bags->ids.data, ids.data()) << "copied";
  EXPECT_FALSE(bags->positions);
  EXPECT_THAT(ValuesOf<int32_t>(bags->segment_ids), ElementsAre(1, 1, 2));
}

TEST(BagErrorsTest, NamesTheOffset) {
  const std::vector<int64_t> ids = {1, 2, 3};
  const auto error = [&](const std::vector<int64_t>& offsets, bool last = false) {
    return CutIntoBags({.ids = TensorView::Vector<int64_t>(ids),
                        .offsets = TensorView::Vector<int64_t>(offsets),

                        .include_last_offset = last})
        .status();
  };
  EXPECT_THAT(error({1, 2}).message(), HasSubstr("[offsets[0]: expected 0, got 1]"));
  EXPECT_THAT(error({0, 2, 1}).message(), HasSubstr("[offsets[2]: expected at least 2, the offset before, got 1]"));
  EXPECT_THAT(error({0, 4}).message(), HasSubstr("[offsets[1]: expected at most 3, the number of ids, got 4]"));
  EXPECT_THAT(error({}, true).message(), HasSubstr("[offsets: expected at least one element"));
}

TEST(BagErrorsTest, NamesTheOperand) {
  const std::vector<int64_t> ids = {1, 2, 3}, offsets = {0};
  const std::vector<float> numbers = {1, 2};
  const TensorView good = TensorView::Vector<int64_t>(ids), bags = TensorView::Vector<int64_t>(offsets);
  const TensorView floats = TensorView::Vector<float>(numbers);
  EXPECT_THAT(CutIntoBags({.ids = floats, .offsets = bags}).status().message(),
              HasSubstr("[indices: expected int32 or int64, got float32]"));
  EXPECT_THAT(CutIntoBags({.ids = good, .offsets = floats}).status().message(),
              HasSubstr("[offsets: expected int32 or int64, got float32]"));
  EXPECT_THAT(CutIntoBags({.ids = good, .offsets = bags, .weights = floats}).status().message(),
              HasSubstr("[weights: expected shape [3], got [2]]"));
}

TEST(BagsTest, SpreadsOverPositions) {
  const std::vector<int32_t> ids = {3, 0, 3, 1}, offsets = {0, 2};
  const std::vector<double> values = {5, 6};
  const auto bags = CutIntoBags({.ids = TensorView::Vector<int32_t>(ids),
                                 .offsets = TensorView::Vector<int32_t>(offsets),

                                 .padding_id = 3});
  ASSERT_THAT(bags, testing::IsOk());
  EXPECT_THAT(ValuesOf<int32_t>(*bags->positions), ElementsAre(1, 3));
  const auto spread = SpreadOverPositions(*bags, TensorView::Vector<double>(values), 4);
  ASSERT_THAT(spread, testing::IsOk());
  EXPECT_THAT(ValuesOf<double>(spread->view()), ElementsAre(0, 5, 0, 6));
}

}  // namespace
}  // namespace raggrad
