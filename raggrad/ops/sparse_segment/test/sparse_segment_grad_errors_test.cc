// The gradients' errors, and operands of huge sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "raggrad/ops/sparse_segment/sparse_segment.h"
#include "raggrad/tensorflow_names.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::testing::Array;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::StatusIs;
using ::testing::HasSubstr;

TEST(SparseSegmentGradErrors, NameTheFaultInTensorFlowsOrder) {
  const Array<float> grad{{1, 2, 3, 4}, Shape{2, 2}};
  const Array<int32_t> ids{{0, 1, 1}}, matrix{{0, 1, 1}, Shape{3, 1}}, two{{0, 1}}, bad_ids{{0, 7, -3}},
      late{{0, 0, 2}}, negative{{0, -1, 1}}, last_bad{{5, 5, 5}};
  const auto v2 = [](const TensorView& g, const TensorView& i, const TensorView& s, const TensorView& d) {
    return SparseSegmentMeanGradV2(g, i, s, d).status();
  };
  const auto v1 = [](const TensorView& g, const TensorView& i, const TensorView& s, const TensorView& d) {
    return SparseSegmentMeanGrad(g, i, s, d).status();
  };
  const int32_t five = 5, minus = -2;
  const TensorView dim0 = TensorView::Scalar(five);
  const auto invalid = [](const char* text) { return StatusIs(Code::kInvalidArgument, HasSubstr(text)); };

  EXPECT_THAT(
      v2(grad, matrix, matrix, dim0),
      invalid("SparseSegmentMeanGradV2: indices should be a vector. [indices: expected rank 1, got shape [3,1]]"));
  EXPECT_THAT(v2(grad, ids, matrix, two), invalid("segment_ids should be a vector."));
  EXPECT_THAT(v2(grad, ids, two, two), invalid("dense_output_dim0 should be a scalar."));
  EXPECT_THAT(v1(grad, ids, two, two), invalid("SparseSegmentMeanGrad: output_dim0 should be a scalar."));
  EXPECT_THAT(v2(grad, ids, two, TensorView::Scalar(minus)), invalid("segment_ids and indices should have same size."));
  EXPECT_THAT(v2(TensorView::Scalar(grad.values[0]), ids, ids, TensorView::Scalar(minus)),
              invalid("Index must be less than 0, got 0"));
  EXPECT_THAT(v2(grad, bad_ids, ids, TensorView::Scalar(minus)), invalid("Expected a non-negative size, got -2"));
  EXPECT_THAT(v2(TensorView::Of(grad.values.data(), Shape{0, int64_t{1} << 62}), ids, ids, dim0),
              invalid("results in overflow when computing number of elements"));
  EXPECT_THAT(v2(grad, bad_ids, late, dim0), invalid("Invalid number of segments"));
  EXPECT_THAT(v2(grad, bad_ids, ids, dim0), invalid("Index 7 out of range [0, 5). [indices[1]]"));
  EXPECT_THAT(v2(grad, ids, negative, dim0), invalid("Segment id -1 out of range [0, 2). [segment_ids[1]]"));
  EXPECT_THAT(v2(grad, bad_ids, negative, dim0), invalid("Index 7 out of range [0, 5)."));
  EXPECT_THAT(v1(grad, bad_ids, negative, dim0), invalid("Segment id -1 out of range [0, 2)."));
  EXPECT_THAT(SparseSegmentSumGrad(grad, bad_ids, negative, dim0), invalid("Index 7 out of range [0, 5)."));
}

TEST(SparseSegmentGradErrors, TypesAreCheckedFirst) {
  const Array<float> grad{{1, 2}, Shape{2, 1}};
  const Array<int32_t> ids{{0, 1}}, matrix{{0, 1}, Shape{1, 2}};
  const int32_t dim0 = 5;
  const int64_t wide_dim0 = 5;
  EXPECT_THAT(
      SparseSegmentSumGradV2(ids, matrix, ids, TensorView::Scalar(dim0)),
      StatusIs(Code::kInvalidArgument, HasSubstr("grad: expected one of half, bfloat16, float32, float64; got int32")));
  EXPECT_THAT(SparseSegmentSumGradV2(grad, grad, ids, TensorView::Scalar(dim0)),
              StatusIs(Code::kInvalidArgument, HasSubstr("indices: expected one of int32, int64; got float32")));
  EXPECT_THAT(SparseSegmentSumGradV2(grad, ids, ids, TensorView::Scalar(wide_dim0)),
              StatusIs(Code::kInvalidArgument, HasSubstr("dense_output_dim0: expected one of int32; got int64")));
  TensorView elsewhere = grad;
  elsewhere.device = Device::Cuda();
  EXPECT_THAT(SparseSegmentSumGradV2(elsewhere, ids, ids, TensorView::Scalar(dim0)),
              StatusIs(Code::kInvalidArgument, HasSubstr("indices: expected that of grad (cuda:0), got host memory")));
  TensorView dim0_elsewhere = TensorView::Scalar(dim0);
  dim0_elsewhere.device = Device::Cuda();
  EXPECT_THAT(SparseSegmentSumGradV2(grad, ids, ids, dim0_elsewhere),
              StatusIs(Code::kInvalidArgument, HasSubstr("dense_output_dim0: expected host memory, got cuda:0")));
  TensorView ids_elsewhere = ids;
  ids_elsewhere.device = elsewhere.device = Device{static_cast<DeviceKind>(8), 0};  // Metal
  EXPECT_THAT(SparseSegmentSumGradV2(elsewhere, ids_elsewhere, ids_elsewhere, TensorView::Scalar(dim0)),
              StatusIs(Code::kUnimplemented, HasSubstr("host memory")));
}

TEST(SparseSegmentGradErrors, TheFirstFaultOfManyThreadsIsReported) {
  const Array<float> grad{std::vector<float>(8, 1.0F), Shape{8}};
  std::vector<int64_t> indices(100'000, 1), segments(100'000, 3);
  for (const size_t bad : {99'999U, 60'000U, 20'001U}) indices[bad] = -static_cast<int64_t>(bad);
  segments[20'000] = 8;
  ForEachSetting([&](const Context& ctx) {
    const int32_t dim0 = 2;
    EXPECT_THAT(
        SparseSegmentMeanGradV2(grad, Array<int64_t>(indices), Array<int64_t>(segments), TensorView::Scalar(dim0), ctx),
        StatusIs(Code::kInvalidArgument, HasSubstr("Segment id 8 out of range [0, 8). [segment_ids[20000]]")));
  });
}

// 2^32 segments and more: TensorFlow counts them in 32 bits, or crashes.
TEST(SparseSegmentGradHuge, ManySegmentsOfNoWidth) {
  const TensorView grad = TensorView::Of<float>(nullptr, Shape{int64_t{1} << 40, 0});
  const Array<int64_t> indices{{3, 1, 3}}, segments{{0, (int64_t{1} << 40) - 1, 5}};
  const int32_t dim0 = 4;
  const auto result = SparseSegmentMeanGradV2(grad, indices, segments, TensorView::Scalar(dim0));
  ASSERT_THAT(result, IsOk());
  EXPECT_TRUE(HoldsBits(result->output.view(), Array<float>({}, Shape{2, 0})));
  EXPECT_TRUE(HoldsBits(result->sorted_unique_indices.view(), Array<int64_t>{{1, 3}}));
}

TEST(SparseSegmentGradHuge, TooLargeAnOutputIsRefused) {
  const Array<float> grad{std::vector<float>(1 << 16, 1.0F), Shape{1, 1 << 16}};
  const Array<int32_t> ids{{0}};
  const int32_t dim0 = std::numeric_limits<int32_t>::max();
  EXPECT_THAT(SparseSegmentSumGrad(grad, ids, ids, TensorView::Scalar(dim0)),
              StatusIs(Code::kResourceExhausted, HasSubstr("OOM")));
}

TEST(SparseSegmentGradIsa, AnInstructionSetTheMachineLacksIsAnError) {
  const Array<float> grad{{1}, Shape{1, 1}};
  const Array<int32_t> ids{{0}};
  const int32_t dim0 = 1;
  Context ctx;
  ctx.isa = AvailableIsas().front() == Isa::kArmV8 ? Isa::kX86V4 : Isa::kArmV8;
  EXPECT_THAT(SparseSegmentSumGradV2(grad, ids, ids, TensorView::Scalar(dim0), ctx),
              StatusIs(Code::kInvalidArgument, HasSubstr("not available")));
}

}  // namespace
}  // namespace raggrad
