#include "raggrad/functional.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "raggrad/testing/array.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::testing::Array;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsOk;

const Array<float> kTable{{1, 2, 4, 1}, Shape{4, 1}};
const Array<int32_t> kIndices{{0, 1, 2, 3, 1}};
const Array<int32_t> kSegments{{0, 0, 0, 0, 1}};

TEST(Functional, Segments) {
  EXPECT_TRUE(HoldsBits(SegmentSum(kTable, kIndices, kSegments)->view(), Array<float>{{8, 2}, Shape{2, 1}}));
  EXPECT_TRUE(HoldsBits(SegmentMean(kTable, kIndices, kSegments)->view(), Array<float>{{2, 2}, Shape{2, 1}}));
  EXPECT_TRUE(HoldsBits(SegmentSqrtN(kTable, kIndices, kSegments)->view(), Array<float>{{4, 2}, Shape{2, 1}}));
}

TEST(Functional, SegmentGradients) {
  const Array<float> grad{{8, 16}, Shape{2, 1}};
  const auto dense = [&](const Result<IndexedSlices>& slices) { return ToDense(slices->view()); };
  EXPECT_TRUE(HoldsBits(dense(SegmentSumGrad(grad, kIndices, kSegments, 5))->view(),
                        Array<float>{{8, 24, 8, 8, 0}, Shape{5, 1}}));
  EXPECT_TRUE(HoldsBits(dense(SegmentMeanGrad(grad, kIndices, kSegments, 5))->view(),
                        Array<float>{{2, 18, 2, 2, 0}, Shape{5, 1}}));
  EXPECT_TRUE(HoldsBits(dense(SegmentSqrtNGrad(grad, kIndices, kSegments, 5))->view(),
                        Array<float>{{4, 20, 4, 4, 0}, Shape{5, 1}}));
  EXPECT_EQ(SegmentSumGrad(grad, kIndices, kSegments, 5)->rows, 5);
  EXPECT_FALSE(SegmentSumGrad(grad, kIndices, kSegments, 3).ok());
}

TEST(Functional, FillEmptyRows) {
  const Array<int64_t> indices{{2, 0}, Shape{2, 1}}, shape{{3}};
  const Array<float> values{{5, 7}};
  const auto filled = FillEmptyRows(indices, values, shape, TensorView::Scalar(1.0F));
  ASSERT_THAT(filled, IsOk());
  EXPECT_TRUE(HoldsBits(filled->output_values.view(), Array<float>{{7, 1, 5}}));
  const auto grad = FillEmptyRowsGrad(filled->reverse_index_map.view(), Array<float>{{1, 2, 4}});
  ASSERT_THAT(grad, IsOk());
  EXPECT_TRUE(HoldsBits(grad->d_values.view(), Array<float>{{4, 1}}));
  EXPECT_TRUE(HoldsBits(grad->d_default_value.view(), Array<float>{{2}, Shape{}}));
}

TEST(Functional, Slice) {
  const Array<int64_t> indices{{0, 3}, Shape{2, 1}}, shape{{4}}, start{{2}}, size{{2}};
  const auto window = Slice(indices, Array<float>{{5, 7}}, shape, start, size);
  ASSERT_THAT(window, IsOk());
  EXPECT_TRUE(HoldsBits(window->output_values.view(), Array<float>{{7}}));
  const auto grad = SliceGrad(Array<float>{{3}}, indices, start, window->output_indices.view());
  ASSERT_THAT(grad, IsOk());
  EXPECT_TRUE(HoldsBits(grad->view(), Array<float>{{0, 3}}));
}

}  // namespace
}  // namespace raggrad
