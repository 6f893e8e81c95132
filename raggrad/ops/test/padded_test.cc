// CheckPadded, with reports as a GPU leaves them.
#include "raggrad/ops/padded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "raggrad/core/padded_report.h"
#include "raggrad/ops/sparse_segment/fault.h"
#include "raggrad/raggrad.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::testing::Array;
using ::raggrad::testing::StatusIs;
using ::testing::HasSubstr;

Result<int64_t> Check(const PaddedReport& report) {
  return CheckPadded(TensorView::Of(reinterpret_cast<const uint64_t*>(&report), Shape{kReportWords}));
}

constexpr PaddedForm kSegmentForms[] = {PaddedForm::kSparseSegmentSumGradV2, PaddedForm::kSparseSegmentMeanGradV2,
                                        PaddedForm::kSparseSegmentSqrtNGradV2, PaddedForm::kCoalesce};
constexpr PaddedForm kEntryForms[] = {PaddedForm::kSparseFillEmptyRows, PaddedForm::kRaggedFillEmptyRows,
                                      PaddedForm::kSparseSlice};

TEST(CheckPadded, ReturnsTheCountOrSaysHowMuchRoomIsNeeded) {
  const auto expect_count_of = [](PaddedForm form, const char* too_many) {
    for (const uint64_t max : {7U, 100U}) {
      const Result<int64_t> count = Check({.count = 7, .form = form, .max = max});
      ASSERT_TRUE(count.ok()) << count.status().message();
      EXPECT_EQ(*count, 7);
    }
    EXPECT_THAT(Check({.count = 7, .form = form, .max = 6}), StatusIs(Code::kResourceExhausted, HasSubstr(too_many)));
  };
  for (const PaddedForm form : kSegmentForms) {
    expect_count_of(form, ": there are more rows than there is room for [max_unique: expected 7 or more, got 6]");
  }
  for (const PaddedForm form : kEntryForms) {
    expect_count_of(form, form == PaddedForm::kSparseSlice
                              ? "SparseSlice: there are more entries than there is room for [max_kept: expected 7"
                              : "FillEmptyRows: there are more entries than there is room for [max_full: expected 7");
  }
}

TEST(CheckPadded, FaultsHaveTheTextOfTheFormsWithoutPadding) {
  const Array<float> grad({1, 2}, {2, 1});
  const Array<int32_t> ids({0, 9, 1}), segments({0, 5, 1}), good({0, 0, 0});
  const auto message = [&](SegmentCombiner combiner, const TensorView& indices, const TensorView& segment_ids) {
    return std::string(
        SparseSegmentGradV2(combiner, grad, indices, segment_ids, TensorView::Scalar(4)).status().message());
  };
  using sparse_segment::Fault;
  const uint64_t index = Fault{Fault::kOneByOne, 1, false}.Encode(),
                 segment = Fault{Fault::kOneByOne, 1, true}.Encode();
  const uint64_t last = Fault{Fault::kLastSegment, 2, true}.Encode();
  EXPECT_EQ(
      Check({.fault = index, .value = 9, .limit = 4, .form = PaddedForm::kSparseSegmentMeanGradV2}).status().message(),
      message(SegmentCombiner::kMean, ids, good));
  EXPECT_EQ(
      Check({.fault = segment, .value = 5, .limit = 2, .form = PaddedForm::kSparseSegmentSumGradV2}).status().message(),
      message(SegmentCombiner::kSum, good, segments));
  EXPECT_EQ(
      Check({.fault = last, .value = 2, .limit = 2, .form = PaddedForm::kSparseSegmentSqrtNGradV2}).status().message(),
      message(SegmentCombiner::kSqrtN, good, Array<int32_t>({0, 0, 2})));
  const Array<float> slices({1, 2, 3});
  EXPECT_EQ(Check({.fault = index, .value = 9, .limit = 4, .form = PaddedForm::kCoalesce}).status().message(),
            Coalesce({slices, ids, 4}).status().message());

  const Array<int64_t> rows({0, -3, 1}), matrix({0, -3, 1}, {3, 1}), dense_shape({2});
  const int64_t nrows = 2;
  const float nothing = 0;
  const TensorView zero = TensorView::Scalar(nothing);
  EXPECT_EQ(Check({.count = 9, .fault = 1, .value = -3, .limit = 2, .form = PaddedForm::kSparseFillEmptyRows})
                .status()
                .message(),
            SparseFillEmptyRows(matrix, slices, dense_shape, zero).status().message());
  EXPECT_EQ(Check({.fault = 1, .value = -3, .limit = 2, .form = PaddedForm::kRaggedFillEmptyRows}).status().message(),
            RaggedFillEmptyRows(rows, slices, TensorView::Scalar(nrows), zero).status().message());
}

TEST(CheckPadded, RefusesEverythingElse) {
  EXPECT_THAT(CheckPadded(SparseSegmentGradV2PaddedOutput{}),
              StatusIs(Code::kInvalidArgument, HasSubstr("CheckPadded: an operand has no data [report")));
  EXPECT_THAT(CheckPadded(Array<int64_t>({0, 0, 0, 0, 0, 0})),
              StatusIs(Code::kInvalidArgument, HasSubstr("report has dtype int64")));
  EXPECT_THAT(CheckPadded(Array<uint64_t>({0, 0, 0, 0, 0})),
              StatusIs(Code::kInvalidArgument, HasSubstr("[report: expected shape [6], got [5]]")));
  constexpr auto kLast = static_cast<uint64_t>(PaddedForm::kSegmentPlan);
  for (const uint64_t form : {uint64_t{0}, kLast + 1, ~uint64_t{0}}) {
    EXPECT_THAT(CheckPadded(Array<uint64_t>({0, ~uint64_t{0}, 0, 0, form, 0})),
                StatusIs(Code::kInvalidArgument, HasSubstr("CheckPadded: this is no report [report[4]: expected")));
  }
}

}  // namespace
}  // namespace raggrad
