// The padded forward has the results and errors of the one without padding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "raggrad/ops/sparse_slice/kernels.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/padded.h"
#include "raggrad/testing/random_tensor.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::testing::Array;
using ::raggrad::testing::Difference;
using ::raggrad::testing::EachDType;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ExpectPaddedIndices;
using ::raggrad::testing::ExpectPaddedRows;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::Generator;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::HostileTensor;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::NameOfDType;
using ::raggrad::testing::OutputsAllocator;
using ::raggrad::testing::StatusIs;
using ::testing::HasSubstr;

// Compares with the form without padding, for the right bound, larger ones and ones that are too small.
void ExpectSameAsUnpadded(const Array<int64_t>& indices, const TensorView& values, const Array<int64_t>& shape,
                          const Array<int64_t>& start, const Array<int64_t>& size, const Context& ctx) {
  const auto want = SparseSlice(indices, values, shape, start, size, ctx);
  ASSERT_THAT(want, IsOk());
  const int64_t kept = want->output_values.shape()[0], d = indices.shape[1];
  for (const int64_t max_kept : {kept, kept + 1, indices.shape[0] + 3, kept - 1, int64_t{0}}) {
    if (max_kept < 0) continue;
    SCOPED_TRACE("room for " + std::to_string(max_kept) + " of " + std::to_string(kept));
    const auto got = SparseSlicePadded(indices, values, shape, start, size, max_kept, ctx);
    if (max_kept < kept) {
      EXPECT_THAT(got, StatusIs(Code::kResourceExhausted,
                                HasSubstr("SparseSlice: there are more entries than there is room for [max_kept: "
                                          "expected " +
                                          std::to_string(kept) + " or more, got " + std::to_string(max_kept) + "]")));
      continue;
    }
    ASSERT_THAT(got, IsOk());
    EXPECT_EQ(got->output_indices.shape(), (Shape{max_kept, d}));
    if (d > 0) {
      ExpectPaddedIndices(got->output_indices.view(), want->output_indices.view(), max_kept,
                          want->output_shape.As<int64_t>()[0]);
    }
    ExpectPaddedRows(got->output_values.view(), want->output_values.view(), max_kept);
    EXPECT_EQ(Difference(got->output_shape.view(), want->output_shape.view()), "");
    const Result<int64_t> count = CheckPadded(*got);
    ASSERT_THAT(count, IsOk());
    EXPECT_EQ(*count, kept);
  }
}

class SparseSlicePaddedTyped : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Each, SparseSlicePaddedTyped, EachDType(sparse_slice::SliceTypes{}), NameOfDType);

TEST_P(SparseSlicePaddedTyped, HasTheEntriesAndThenPadding) {
  Generator random(1);
  for (const int64_t d : {0, 1, 2, 5}) {
    for (const int64_t n : {0, 1, 65, 20'000}) {
      SCOPED_TRACE(std::to_string(n) + " entries, " + std::to_string(d) + " columns");
      const Tensor values = HostileTensor(random, GetParam(), Shape{n});
      const Array<int64_t> indices(random.UniformIds<int64_t>(n * d, 6), {n, d});
      const Array<int64_t> shape(std::vector<int64_t>(static_cast<size_t>(d), 6));
      const Array<int64_t> start(std::vector<int64_t>(static_cast<size_t>(d), 1));
      for (const int64_t side : {0, 3}) {
        const Array<int64_t> size(std::vector<int64_t>(static_cast<size_t>(d), side));
        ForEachSetting(
            [&](const Context& ctx) { ExpectSameAsUnpadded(indices, values.view(), shape, start, size, ctx); });
      }
    }
  }
}

TEST_P(SparseSlicePaddedTyped, ReportsEveryAllocationFailure) {
  Generator random(2);
  const Tensor values = HostileTensor(random, GetParam(), Shape{100});
  const Array<int64_t> indices(random.UniformIds<int64_t>(100, 30), {100, 1});
  ExpectEveryAllocationFailureIsReported({}, [&](const Context& ctx) {
    return SparseSlicePadded(indices, values.view(), Array<int64_t>({30}), Array<int64_t>({10}), Array<int64_t>({15}),
                             100, ctx)
        .status();
  });
}

TEST(SparseSlicePadded, ASmallExample) {
  const Array<int64_t> indices({0, 1, 2, 3, 3, 0}, {3, 2}), shape({4, 5}), start({1, 2}), size({2, 9});
  const auto got = SparseSlicePadded(indices, Array<float>({1, 2, 3}), shape, start, size, 3);
  ASSERT_THAT(got, IsOk());
  EXPECT_TRUE(HoldsBits(got->output_indices.view(), Array<int64_t>({1, 1, 2, 0, 2, 0}, {3, 2})));
  EXPECT_TRUE(HoldsBits(got->output_values.view(), Array<float>({2, 0, 0})));
  EXPECT_TRUE(HoldsBits(got->output_shape.view(), Array<int64_t>({2, 3})));
  EXPECT_EQ(got->report.shape(), Shape{6});
  EXPECT_EQ(got->report.As<uint64_t>()[0], 1U);
}

TEST(SparseSlicePadded, FaultsHaveTheTextOfTheFormWithoutPadding) {
  const Array<int64_t> indices({0, 1}, {2, 1}), shape({4}), start({1}), negative({-1});
  const Array<float> values({1, 2});
  EXPECT_EQ(SparseSlicePadded(indices, values, shape, start, negative, 3).status().message(),
            SparseSlice(indices, values, shape, start, negative).status().message());
  EXPECT_THAT(SparseSlicePadded(indices, values, shape, start, shape, -1),
              StatusIs(Code::kInvalidArgument,
                       HasSubstr("SparseSlice: max_kept is out of range [max_kept: expected at least 0, got -1]")));
  EXPECT_THAT(SparseSlicePadded(indices, values, shape, start, shape, INT64_MAX / 2),
              StatusIs(Code::kResourceExhausted, HasSubstr("SparseSlice: ")));
}

TEST(SparseSlicePadded, AsksForEachOutputOnce) {
  OutputsAllocator allocator;
  Context ctx;
  ctx.allocator = &allocator;
  const Array<int64_t> indices({0, 1, 2}, {3, 1}), shape({4}), start({1}), size({2});
  const auto got = SparseSlicePadded(indices, Array<float>({1, 2, 3}), shape, start, size, 5, ctx);
  ASSERT_THAT(got, IsOk());
  allocator.ExpectOnly(
      {got->output_indices.view(), got->output_values.view(), got->output_shape.view(), got->report.view()});
}

}  // namespace
}  // namespace raggrad
