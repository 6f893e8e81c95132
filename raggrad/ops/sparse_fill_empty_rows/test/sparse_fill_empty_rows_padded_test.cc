// The padded forms have the results and errors of those without padding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "raggrad/ops/sparse_fill_empty_rows/kernels.h"
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

Array<int64_t> Scalar(int64_t value) { return {{value}, Shape{}}; }

// Expects the outputs that both forms have: all but output 0.
void ExpectSameButIndices(const auto& padded, const auto& want, int64_t max_full) {
  ExpectPaddedRows(padded.output_values.view(), want.output_values.view(), max_full);
  EXPECT_EQ(Difference(padded.empty_row_indicator.view(), want.empty_row_indicator.view()), "");
  EXPECT_EQ(Difference(padded.reverse_index_map.view(), want.reverse_index_map.view()), "");
  const Result<int64_t> count = CheckPadded(padded);
  ASSERT_THAT(count, IsOk());
  EXPECT_EQ(*count, want.output_values.shape()[0]);
}

// Compares both padded forms with both others, for the right bound, larger ones and ones that are too small.
void ExpectSameAsUnpadded(const Array<int64_t>& indices, int64_t rows, const TensorView& values,
                          const TensorView& default_value, const Context& ctx) {
  const int64_t n = indices.shape[0], d = indices.shape[1];
  Array<int64_t> dense_shape(std::vector<int64_t>(static_cast<size_t>(d), -7));
  dense_shape.values[0] = rows;
  const auto want = SparseFillEmptyRows(indices, values, dense_shape, default_value, ctx);
  ASSERT_THAT(want, IsOk());
  const int64_t n_full = want->output_values.shape()[0];
  const Array<int64_t> rowids(indices.values, {n});
  for (const int64_t max_full : {n_full, n_full + 1, n + rows + 3, n_full - 1, int64_t{0}}) {
    if (max_full < 0) continue;
    SCOPED_TRACE("room for " + std::to_string(max_full) + " of " + std::to_string(n_full));
    const auto got = SparseFillEmptyRowsPadded(indices, values, dense_shape, default_value, max_full, ctx);
    if (max_full < n_full) {
      const std::string text = "there are more entries than there is room for [max_full: expected " +
                               std::to_string(n_full) + " or more, got " + std::to_string(max_full) + "]";
      EXPECT_THAT(got, StatusIs(Code::kResourceExhausted, HasSubstr("SparseFillEmptyRows: " + text)));
      continue;
    }
    ASSERT_THAT(got, IsOk());
    EXPECT_EQ(got->output_indices.shape(), (Shape{max_full, d}));
    ExpectPaddedIndices(got->output_indices.view(), want->output_indices.view(), max_full, rows);
    ExpectSameButIndices(*got, *want, max_full);
    if (d > 1) continue;
    const auto ragged = RaggedFillEmptyRows(rowids, values, Scalar(rows), default_value, ctx);
    const auto padded = RaggedFillEmptyRowsPadded(rowids, values, Scalar(rows), default_value, max_full, ctx);
    ASSERT_THAT(padded, IsOk());
    EXPECT_EQ(padded->output_value_rowids.shape(), Shape{max_full});
    TensorView rowids_of_rows = ragged->output_value_rowids.view();
    rowids_of_rows.shape = Shape{n_full};  // [0, 1] without rows
    ExpectPaddedIndices(padded->output_value_rowids.view(), rowids_of_rows, max_full, rows);
    ExpectSameButIndices(*padded, *ragged, max_full);
  }
}

class FillEmptyRowsPaddedTyped : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Each, FillEmptyRowsPaddedTyped, EachDType(sparse_fill_empty_rows::FillTypes{}), NameOfDType);

TEST_P(FillEmptyRowsPaddedTyped, HasTheEntriesAndThenPadding) {
  Generator random(1);
  const Tensor default_value = HostileTensor(random, GetParam(), Shape{});
  struct Size {
    int64_t n, rows;
  };
  for (const Size& size : {Size{0, 0}, Size{0, 5}, Size{1, 1}, Size{3, 10}, Size{40, 7}, Size{20'000, 30'000}}) {
    const int64_t n = size.n, rows = size.rows;
    for (const int64_t d : {1, 3}) {
      SCOPED_TRACE(std::to_string(n) + " entries, " + std::to_string(rows) + " rows, d " + std::to_string(d));
      const Tensor values = HostileTensor(random, GetParam(), Shape{n});
      Array<int64_t> indices({}, Shape{n, d});
      for (int64_t i = 0; i < n; ++i) {
        indices.values.push_back(random.Below(rows));
        for (int64_t c = 1; c < d; ++c) indices.values.push_back(random.Hostile<int64_t>());
      }
      ForEachSetting(
          [&](const Context& ctx) { ExpectSameAsUnpadded(indices, rows, values.view(), default_value.view(), ctx); });
    }
  }
}

TEST_P(FillEmptyRowsPaddedTyped, ReportsEveryAllocationFailure) {
  Generator random(2);
  const Tensor values = HostileTensor(random, GetParam(), Shape{100});
  const Tensor default_value = HostileTensor(random, GetParam(), Shape{});
  const Array<int64_t> rowids(random.UniformIds<int64_t>(100, 30));
  ExpectEveryAllocationFailureIsReported({}, [&](const Context& ctx) {
    return RaggedFillEmptyRowsPadded(rowids, values.view(), Scalar(30), default_value.view(), 130, ctx).status();
  });
}

TEST(FillEmptyRowsPadded, ASmallExample) {
  const Array<int64_t> indices({2, 7, 0, 5, 2, 3}, {3, 2});
  const auto got =
      SparseFillEmptyRowsPadded(indices, Array<float>({1, 2, 3}), Array<int64_t>({4, 9}), TensorView::Scalar(9.0F), 7);
  ASSERT_THAT(got, IsOk());
  EXPECT_TRUE(
      HoldsBits(got->output_indices.view(), Array<int64_t>({0, 5, 1, 0, 2, 7, 2, 3, 3, 0, 4, 0, 4, 0}, {7, 2})));
  EXPECT_TRUE(HoldsBits(got->output_values.view(), Array<float>({2, 9, 1, 3, 9, 0, 0})));
  EXPECT_EQ(got->report.shape(), Shape{6});
  EXPECT_EQ(got->report.As<uint64_t>()[0], 5U);
  EXPECT_EQ(got->report.As<uint64_t>()[1], ~uint64_t{0});
}

TEST(FillEmptyRowsPadded, FaultsHaveTheTextOfTheFormsWithoutPadding) {
  const Array<float> values({1, 2, 3});
  const float nothing = 0;
  const TensorView zero = TensorView::Scalar(nothing);
  for (const int64_t bad : {4, -1}) {
    const Array<int64_t> rowids({0, bad, bad}), indices({0, bad, bad}, {3, 1});
    for (const int64_t max_full : {0, 100}) {
      const auto sparse = SparseFillEmptyRowsPadded(indices, values, Array<int64_t>({4}), zero, max_full);
      EXPECT_EQ(sparse.status().code(), Code::kInvalidArgument);
      EXPECT_EQ(sparse.status().message(),
                SparseFillEmptyRows(indices, values, Array<int64_t>({4}), zero).status().message());
      const auto ragged = RaggedFillEmptyRowsPadded(rowids, values, Scalar(4), zero, max_full);
      EXPECT_EQ(ragged.status().message(), RaggedFillEmptyRows(rowids, values, Scalar(4), zero).status().message());
    }
  }
  const Array<int64_t> none(std::vector<int64_t>{});
  EXPECT_THAT(RaggedFillEmptyRowsPadded(none, Array<float>({}), Scalar(2), zero, -1),
              StatusIs(Code::kInvalidArgument,
                       HasSubstr("RaggedFillEmptyRows: max_full is out of range [max_full: expected at least 0")));
  EXPECT_THAT(SparseFillEmptyRowsPadded(none, values, none, zero, 3),
              StatusIs(Code::kInvalidArgument, HasSubstr("indices must be a matrix")));
  EXPECT_THAT(RaggedFillEmptyRowsPadded(none, Array<float>({}), Scalar(2), zero, INT64_MAX),
              StatusIs(Code::kResourceExhausted, HasSubstr("RaggedFillEmptyRows: ")));
}

TEST(FillEmptyRowsPadded, AsksForEachOutputOnce) {
  OutputsAllocator allocator;
  Context ctx;
  ctx.allocator = &allocator;
  const Array<int64_t> rowids({3, 1, 3});
  const auto got =
      RaggedFillEmptyRowsPadded(rowids, Array<float>({1, 2, 3}), Scalar(4), TensorView::Scalar(9.0F), 9, ctx);
  ASSERT_THAT(got, IsOk());
  allocator.ExpectOnly({got->output_value_rowids.view(), got->output_values.view(), got->empty_row_indicator.view(),
                        got->reverse_index_map.view(), got->report.view()});
}

}  // namespace
}  // namespace raggrad
