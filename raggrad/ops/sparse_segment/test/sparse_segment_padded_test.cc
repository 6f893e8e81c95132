// The padded forms have the results and errors of those without padding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "raggrad/ops/sparse_segment/indexed_slices.h"
#include "raggrad/ops/sparse_segment/test/test_ids.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/combiners.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/padded.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::sparse_segment::Ids;
using ::raggrad::testing::Array;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ExpectPaddedIndices;
using ::raggrad::testing::ExpectPaddedRows;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::Generator;
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::kCombiners;
using ::raggrad::testing::OutputsAllocator;
using ::raggrad::testing::StatusIs;
using ::testing::HasSubstr;

// Compares pad(max_unique), which must have the values and indices of `want`, for the right bound, larger ones and ones
// that are too small. `fields` gives the two tensors of a padded result.
template <class Pad, class Fields>
void ExpectSameRows(const TensorView& values, const TensorView& indices, int64_t table_rows, const Pad& pad,
                    const Fields& fields) {
  const int64_t unique = indices.shape[0];
  for (const int64_t max_unique : {unique, unique + 1, unique + 1000, unique - 1, int64_t{0}}) {
    if (max_unique < 0) continue;
    SCOPED_TRACE("room for " + std::to_string(max_unique) + " of " + std::to_string(unique));
    const auto got = pad(max_unique);
    if (max_unique < unique) {
      EXPECT_THAT(got, StatusIs(Code::kResourceExhausted,
                                HasSubstr(": there are more rows than there is room for [max_unique: expected " +
                                          std::to_string(unique) + " or more, got " + std::to_string(max_unique))));
      continue;
    }
    ASSERT_THAT(got, IsOk());
    const auto [got_values, got_indices] = fields(*got);
    ExpectPaddedRows(got_values, values, max_unique);
    if (indices.dtype == DType::kInt32) {
      ExpectPaddedIndices(got_indices, indices, max_unique, static_cast<int32_t>(table_rows));
    } else {
      ExpectPaddedIndices(got_indices, indices, max_unique, table_rows);
    }
    const Result<int64_t> count = CheckPadded(*got);
    ASSERT_THAT(count, IsOk());
    EXPECT_EQ(*count, unique);
  }
}

template <class T>
class SegmentPadded : public ::testing::Test {};
TYPED_TEST_SUITE(SegmentPadded, GtestTypes<FloatTypes>);

TYPED_TEST(SegmentPadded, HasTheRowsAndThenPadding) {
  struct Size {
    int64_t n, rows, width;
  };
  for (const Size& size : {Size{0, 3, 2}, Size{5, 4, 3}, Size{9, 4, 0}, Size{20'000, 300, 19}}) {
    const int64_t n = size.n, rows = size.rows, width = size.width, segments = 40;
    Generator random(static_cast<uint64_t>(n));
    const Ids ids = random.ZipfIds<int64_t>(n, rows), segment_ids = random.UniformIds<int64_t>(n, segments);
    const Array<TypeParam> grad{random.HostileValues<TypeParam>(segments * width), Shape{segments, width}};
    const Array<TypeParam> slices{random.HostileValues<TypeParam>(n * width), Shape{n, width}};
    const auto dim0 = static_cast<int32_t>(rows);
    for (const DType dtype : {DType::kInt32, DType::kInt64}) {
      ForEachSetting([&](const Context& ctx) {
        for (const SegmentCombiner combiner : kCombiners) {
          const auto want = SparseSegmentGradV2(combiner, grad, ids.As(dtype), segment_ids.As(DType::kInt64),
                                                TensorView::Scalar(dim0), ctx);
          ASSERT_THAT(want, IsOk());
          ExpectSameRows(
              want->output.view(), want->sorted_unique_indices.view(), rows,
              [&](int64_t max_unique) {
                return SparseSegmentGradV2Padded(combiner, grad, ids.As(dtype), segment_ids.As(DType::kInt64),
                                                 TensorView::Scalar(dim0), max_unique, ctx);
              },
              [](const SparseSegmentGradV2PaddedOutput& padded) {
                return std::pair(padded.output.view(), padded.sorted_unique_indices.view());
              });
        }
        const auto want = Coalesce({slices, ids.As(dtype), rows}, ctx);
        ASSERT_THAT(want, IsOk());
        ExpectSameRows(
            want->values.view(), want->indices.view(), rows,
            [&](int64_t max_unique) {
              return CoalescePadded({slices, ids.As(dtype), rows}, max_unique, ctx);
            },
            [&](const CoalescePaddedOutput& padded) {
              EXPECT_EQ(padded.table_rows, rows);
              return std::pair(padded.values.view(), padded.indices.view());
            });
      });
    }
  }
}

TEST(SparseSegmentGradPadded, RowsAndThenPadding) {
  const Array<float> grad{{1, 2, 4, 8}, Shape{2, 2}};
  const Array<int64_t> indices{{5, 1, 5}};
  const Array<int32_t> segment_ids{{0, 1, 1}};
  const auto run = [&](int64_t max_unique, int32_t dim0, const Context& ctx = {}) {
    return SparseSegmentGradV2Padded(SegmentCombiner::kSum, grad, indices, segment_ids, TensorView::Scalar(dim0),
                                     max_unique, ctx);
  };
  const auto padded = run(4, 6);
  ASSERT_THAT(padded, IsOk());
  EXPECT_TRUE(HoldsBits(padded->output.view(), Array<float>{{4, 8, 5, 10, 0, 0, 0, 0}, Shape{4, 2}}));
  EXPECT_TRUE(HoldsBits(padded->sorted_unique_indices.view(), Array<int64_t>{{1, 5, 6, 6}}));
  EXPECT_EQ(*CheckPadded(*padded), 2);
  EXPECT_EQ(*CheckPadded(*run(2, 6)), 2);
  EXPECT_THAT(run(1, 6), StatusIs(Code::kResourceExhausted, HasSubstr("[max_unique: expected 2 or more, got 1]")));
  EXPECT_THAT(run(-1, 6), StatusIs(Code::kInvalidArgument, HasSubstr("[max_unique: expected at least 0, got -1]")));
  EXPECT_EQ(run(4, 5).status().message(), "SparseSegmentSumGradV2: Index 5 out of range [0, 5). [indices[0]]");
  ExpectEveryAllocationFailureIsReported({}, [&](const Context& failing) { return run(3, 6, failing).status(); });

  const auto no_table = run(3, 0);  // without a table the ids are not read
  ASSERT_THAT(no_table, IsOk());
  EXPECT_TRUE(HoldsBits(no_table->output.view(), Array<float>{{0, 0, 0, 0, 0, 0}, Shape{3, 2}}));
  EXPECT_TRUE(HoldsBits(no_table->sorted_unique_indices.view(), Array<int64_t>{{0, 0, 0}}));
  EXPECT_EQ(*CheckPadded(*no_table), 0);

  OutputsAllocator allocator;
  Context ctx;
  ctx.allocator = &allocator;
  const auto placed = run(4, 6, ctx);
  ASSERT_THAT(placed, IsOk());
  allocator.ExpectOnly({placed->output.view(), placed->sorted_unique_indices.view(), placed->report.view()});
}

TEST(CoalescePadded, RowsAndThenPadding) {
  const Array<float> values{{1, 2, 3, 4, 5, 6}, Shape{3, 2}};
  const Array<int32_t> indices{{5, 1, 5}};
  const auto run = [&](int64_t max_unique, int64_t table_rows, const Context& ctx = {}) {
    return CoalescePadded({values, indices, table_rows}, max_unique, ctx);
  };
  const auto padded = run(3, 6);
  ASSERT_THAT(padded, IsOk());
  EXPECT_TRUE(HoldsBits(padded->values.view(), Array<float>{{3, 4, 6, 8, 0, 0}, Shape{3, 2}}));
  EXPECT_TRUE(HoldsBits(padded->indices.view(), Array<int32_t>{{1, 5, 6}}));
  EXPECT_EQ(*CheckPadded(*padded), 2);
  EXPECT_THAT(run(-1, 6), StatusIs(Code::kInvalidArgument, HasSubstr("Coalesce: max_unique is out of range")));
  EXPECT_THAT(run(0, 6), StatusIs(Code::kResourceExhausted, HasSubstr("[max_unique: expected 2 or more, got 0]")));
  EXPECT_EQ(run(3, 5).status().message(), Coalesce({values, indices, 5}).status().message());
  EXPECT_EQ(run(3, -1).status().message(), Coalesce({values, indices, -1}).status().message());
  ExpectEveryAllocationFailureIsReported({}, [&](const Context& failing) { return run(3, 6, failing).status(); });
}

TEST(CoalescePadded, PaddingNeedsAnIndexBehindTheTable) {
  const Array<float> values{{1, 2}};
  const Array<int32_t> narrow{{7, 7}};
  const Array<int64_t> wide{{7, 7}};
  constexpr int64_t kRows = int64_t{1} << 32;
  const auto padded = CoalescePadded({values, wide, kRows}, 2);
  ASSERT_THAT(padded, IsOk());
  EXPECT_TRUE(HoldsBits(padded->indices.view(), Array<int64_t>{{7, kRows}}));
  ASSERT_THAT(CoalescePadded({values, narrow, INT32_MAX}, 2), IsOk());
  EXPECT_THAT(CoalescePadded({values, narrow, int64_t{1} << 31}, 2),
              StatusIs(Code::kInvalidArgument,
                       HasSubstr("[table_rows: expected at most 2147483647, or int64 indices, got 2147483648]")));
}

}  // namespace
}  // namespace raggrad
