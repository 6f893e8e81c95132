// Padded gradients on a GPU that leave out ids whose segments are out of range: as if the caller had left them out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "raggrad/ops/sparse_segment/segment_order.h"
#include "raggrad/ops/sparse_segment/test/test_batch.h"
#include "raggrad/testing/padded_on_device.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::sparse_segment {
namespace {

using ::raggrad::testing::ExpectSamePadded;
using ::raggrad::testing::GpuTest;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::Reproducible;
using ::testing::HasSubstr;
using Grad = SparseSegmentGradV2PaddedOutput;

constexpr int32_t kRows = 500;
constexpr int64_t kSegments = 40;

// A batch with some ids whose segments are out of range, and the same batch without them.
struct Dropping {
  Batch all;
  Batch kept;
  Array<float> weights;
  Array<float> kept_weights;

  // Of `each` ids one is dropped; 1: all of them.
  static Dropping Make(int64_t n, int64_t each) {
    Generator random(n + each);
    std::vector<int64_t> indices = random.ZipfIds<int64_t>(n, kRows), kept_indices;
    std::vector<int64_t> segments = random.UniformIds<int64_t>(n, kSegments), kept_segments;
    std::vector<float> weights, kept_weights;
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(i);
      weights.push_back(static_cast<float>(random.Below(17) - 8) / 4);
      if (each > 0 && random.Below(each) == 0) {
        segments[at] = std::vector<int64_t>{-1, kSegments, INT32_MIN, INT32_MAX}[at % 4];
        indices[at] = std::vector<int64_t>{indices[at], -7, kRows}[at % 3];  // any row will do
        weights[at] = at % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : weights[at];
        continue;
      }
      kept_indices.push_back(indices[at]);
      kept_segments.push_back(segments[at]);
      kept_weights.push_back(weights[at]);
    }
    const auto kept_count = static_cast<int64_t>(kept_weights.size());
    return {Batch(std::move(indices), std::move(segments), kRows, kSegments),
            Batch(std::move(kept_indices), std::move(kept_segments), kRows, kSegments),
            {std::move(weights), Shape{n}},
            {std::move(kept_weights), Shape{kept_count}}};
  }
};

void ExpectSameRows(const Result<Grad>& got, const Result<Grad>& want) {
  ExpectSamePadded(got, want, {}, &Grad::output, &Grad::sorted_unique_indices);
}

class InRangeCuda : public GpuTest {};

TEST_F(InRangeCuda, HasTheResultWithoutThem) {
  for (const auto& [n, each] : {std::pair{1, 1}, {1, 0}, {3000, 1}, {3000, 2}, {3000, 50}, {20'000, 3}, {700, 0}}) {
    const Dropping ids = Dropping::Make(n, each);
    for (const int64_t width : {1, 6, 32}) {
      const Array<float> grad = WholeGrad<float>(ids.all, width, 1);
      const OnDevice device_grad(grad), device_weights(ids.weights);
      for (const DType dtype : {DType::kInt32, DType::kInt64}) {
        for (const SegmentCombiner combiner : kCombiners) {
          for (const Context& ctx : {Sequential(), Reproducible()}) {
            for (const int64_t max_unique : {int64_t{kRows}, int64_t{kRows + 1}, int64_t{3}, int64_t{0}}) {
              SCOPED_TRACE(::testing::Message() << n << " ids, 1 of " << each << " dropped, room for " << max_unique);
              ExpectSameRows(
                  SparseSegmentGradV2PaddedInRange(combiner, device_grad, ids.all.device_index(dtype),
                                                   ids.all.device_segment(dtype), ids.all.dim0(), max_unique, ctx),
                  SparseSegmentGradV2Padded(combiner, grad, ids.kept.index(dtype), ids.kept.segment(dtype),
                                            ids.kept.dim0(), max_unique, ctx));
              const SegmentPooling weighted = {combiner, {device_weights, WeightDivisor::kCount}};
              const SegmentPooling kept_weighted = {combiner, {ids.kept_weights, WeightDivisor::kCount}};
              ExpectSameRows(
                  SparseSegmentGradV2PaddedInRange(weighted, device_grad, ids.all.device_index(dtype),
                                                   ids.all.device_segment(dtype), ids.all.dim0(), max_unique, ctx),
                  SparseSegmentGradV2Padded(kept_weighted, grad, ids.kept.index(dtype), ids.kept.segment(dtype),
                                            ids.kept.dim0(), max_unique, ctx));
            }
          }
        }
      }
    }
  }
}

TEST_F(InRangeCuda, BadRowsOfOtherIdsAreFaults) {
  const Batch batch({3, 600, -1}, {-1, 90, 2}, kRows, kSegments);
  const Array<float> grad = WholeGrad<float>(batch, 6, 1);
  const OnDevice device_grad(grad);
  for (const int32_t rows : {kRows, 0}) {
    const Result<Grad> got =
        SparseSegmentGradV2PaddedInRange(SegmentCombiner::kMean, device_grad, batch.device_index(DType::kInt64),
                                         batch.device_segment(DType::kInt64), TensorView::Scalar(rows), 3);
    ASSERT_THAT(got, IsOk());
    EXPECT_THAT(std::string(CheckPadded(*got).status().message()), HasSubstr("2]")) << "the position of the bad row";
    const Tensor values = testing::OnHost(got->output.view());
    for (int i = 0; i < 18; ++i) EXPECT_TRUE(std::isnan(values.As<float>()[i]));
  }
}

TEST_F(InRangeCuda, RefusesHostMemoryAndDivisionByWeights) {
  const Dropping ids = Dropping::Make(10, 2);
  const Array<float> grad = WholeGrad<float>(ids.all, 6, 1);
  EXPECT_EQ(SparseSegmentGradV2PaddedInRange(SegmentCombiner::kSum, grad, ids.all.index(DType::kInt32),
                                             ids.all.segment(DType::kInt32), ids.all.dim0(), 3)
                .status()
                .code(),
            Code::kUnimplemented);
  const OnDevice device_grad(grad), weights(ids.weights);
  EXPECT_EQ(SparseSegmentGradV2PaddedInRange({SegmentCombiner::kMean, {weights, WeightDivisor::kWeights}}, device_grad,
                                             ids.all.device_index(DType::kInt32), ids.all.device_segment(DType::kInt32),
                                             ids.all.dim0(), 3)
                .status()
                .code(),
            Code::kUnimplemented);
}

TEST_F(InRangeCuda, LargeOutputsAreTheSame) {
  constexpr int64_t kIds = 60'000;
  const Dropping ids = Dropping::Make(kIds, 4);
  const Array<float> grad = WholeGrad<float>(ids.all, 32, 1);
  const OnDevice device_grad(grad);
  const auto padded = [&](const TensorView& dim0) {
    return SparseSegmentGradV2PaddedInRange(SegmentCombiner::kMean, device_grad, ids.all.device_index(DType::kInt32),
                                            ids.all.device_segment(DType::kInt32), dim0, kIds, Sequential());
  };
  for (int i = 0; i < 10; ++i) {
    ExpectSameRows(padded(ids.all.dim0()),
                   SparseSegmentGradV2Padded(SegmentCombiner::kMean, grad, ids.kept.index(DType::kInt32),
                                             ids.kept.segment(DType::kInt32), ids.kept.dim0(), kIds, Sequential()));
  }
  const Result<Grad> fault = padded(TensorView::Scalar(int32_t{100}));  // some ids are rows behind these
  ASSERT_THAT(fault, IsOk());
  const Tensor values = testing::OnHost(fault->output.view());
  for (int64_t i = 0; i < kIds * 32; i += 31) ASSERT_TRUE(std::isnan(values.As<float>()[i]));
}

}  // namespace
}  // namespace raggrad::sparse_segment
