// The CPU's padded results and errors on a GPU, in CUDA graphs, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "raggrad/ops/sparse_segment/indexed_slices.h"
#include "raggrad/ops/sparse_segment/test/test_batch.h"
#include "raggrad/testing/captured_graph.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/padded_on_device.h"

namespace raggrad::sparse_segment {
namespace {

using ::raggrad::testing::CapturedGraph;
using ::raggrad::testing::ExpectEveryDeviceAllocationFailureIsReported;
using ::raggrad::testing::ExpectNoWait;
using ::raggrad::testing::ExpectSamePadded;
using ::raggrad::testing::GpuTest;
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::IsOk;
using Grad = SparseSegmentGradV2PaddedOutput;
using Slices = CoalescePaddedOutput;

void ExpectSameRows(const Result<Grad>& got, const Result<Grad>& want, const Context& ctx = {}) {
  ExpectSamePadded(got, want, ctx, &Grad::output, &Grad::sorted_unique_indices);
}
void ExpectSameRows(const Result<Slices>& got, const Result<Slices>& want, const Context& ctx = {}) {
  ExpectSamePadded(got, want, ctx, &Slices::values, &Slices::indices);
}

template <class T>
class SegmentPaddedCudaTyped : public GpuTest {};
TYPED_TEST_SUITE(SegmentPaddedCudaTyped, GtestTypes<FloatTypes>);

TYPED_TEST(SegmentPaddedCudaTyped, HasTheCpusResult) {
  for (const auto& [n, width] : {std::pair{1, 1}, {3000, 6}, {3000, 32}, {700, 0}}) {
    const Batch batch = Batch::Zipf(n, 500, 40, 3);
    Generator random(1);
    const Array<TypeParam> grad{random.HostileValues<TypeParam>(40 * width), Shape{40, width}};
    const Array<TypeParam> slices{random.HostileValues<TypeParam>(n * width), Shape{n, width}};
    const OnDevice device_grad(grad), device_slices(slices);
    std::vector<int64_t> ids = batch.indices.wide;
    std::sort(ids.begin(), ids.end());
    const int64_t unique = std::unique(ids.begin(), ids.end()) - ids.begin();
    for (const DType dtype : kIndexTypes) {
      for (const int64_t max_unique : {unique, unique + 1, int64_t{1000}, unique - 1, int64_t{0}}) {
        SCOPED_TRACE("room for " + std::to_string(max_unique) + " of " + std::to_string(unique));
        for (const SegmentCombiner combiner : kCombiners) {
          ExpectSameRows(
              SparseSegmentGradV2Padded(combiner, device_grad, batch.device_index(dtype),
                                        batch.device_segment(DType::kInt64), batch.dim0(), max_unique, Sequential()),
              SparseSegmentGradV2Padded(combiner, grad, batch.index(dtype), batch.segment(DType::kInt64), batch.dim0(),
                                        max_unique));
        }
        ExpectSameRows(CoalescePadded({device_slices, batch.device_index(dtype), 500}, max_unique, Sequential()),
                       CoalescePadded({slices, batch.index(dtype), 500}, max_unique));
      }
    }
  }
}

TEST_F(GpuTest, PaddingWithoutIdsOrTable) {
  for (const auto& [n, rows] : {std::pair{0, 7}, {0, 0}, {4, 0}}) {
    const Batch batch(std::vector<int64_t>(static_cast<size_t>(n)), std::vector<int64_t>(static_cast<size_t>(n)), rows,
                      2);
    const Array<float> grad({1, 2, 3, 4, 5, 6}, Shape{2, 3});
    const Array<float> slices(std::vector<float>(static_cast<size_t>(3 * n), 1), Shape{n, 3});
    const OnDevice device_grad(grad), device_slices(slices);
    for (const int64_t max_unique : {0, 5}) {
      SCOPED_TRACE(std::to_string(n) + " ids, " + std::to_string(rows) + " rows");
      ExpectSameRows(SparseSegmentGradV2Padded(SegmentCombiner::kMean, device_grad, batch.device_index(DType::kInt32),
                                               batch.device_segment(DType::kInt32), batch.dim0(), max_unique),
                     SparseSegmentGradV2Padded(SegmentCombiner::kMean, grad, batch.index(DType::kInt32),
                                               batch.segment(DType::kInt32), batch.dim0(), max_unique));
      ExpectSameRows(CoalescePadded({device_slices, batch.device_index(DType::kInt64), rows}, max_unique),
                     CoalescePadded({slices, batch.index(DType::kInt64), rows}, max_unique));
    }
  }
}

TEST_F(GpuTest, PaddedFaultsHaveTheCpusText) {
  const Array<float> grad = {{1, 2}, Shape{2, 1}}, no_grad = {{}, Shape{0, 1}};
  const Array<float> slices = {{1, 2, 3}, Shape{3, 1}};
  const OnDevice device_slices(slices);
  using Ids = std::vector<int64_t>;
  for (const auto& [index, segment] :
       {std::pair<Ids, Ids>{{0, 9, -1}, {0, 0, 0}}, {{0, 1, 2}, {0, -3, 1}}, {{0, 9, 2}, {0, 1, 2}}}) {
    const Batch batch(index, segment, 4, 2);
    for (const SegmentCombiner combiner : kCombiners) {
      for (const Array<float>* values : {&grad, &no_grad}) {
        ExpectSameRows(SparseSegmentGradV2Padded(combiner, OnDevice(*values), batch.device_index(DType::kInt32),
                                                 batch.device_segment(DType::kInt64), batch.dim0(), 3),
                       SparseSegmentGradV2Padded(combiner, *values, batch.index(DType::kInt32),
                                                 batch.segment(DType::kInt64), batch.dim0(), 3));
      }
    }
    ExpectSameRows(CoalescePadded({device_slices, batch.device_index(DType::kInt64), 2}, 3),
                   CoalescePadded({slices, batch.index(DType::kInt64), 2}, 3));
    const auto after_fault =
        SparseSegmentGradV2Padded(SegmentCombiner::kSum, OnDevice(grad), batch.device_index(DType::kInt32),
                                  batch.device_segment(DType::kInt64), batch.dim0(), 3);
    const Tensor values = testing::OnHost(after_fault->output.view());
    EXPECT_TRUE(std::all_of(values.As<float>(), values.As<float>() + 3, [](float x) { return std::isnan(x); }));
  }
}

TEST_F(GpuTest, PaddedFormsNeverWait) {
  const Batch batch = Batch::Zipf(3000, 500, 40, 3);
  const Array<float> grad = WholeGrad<float>(batch, 6, 1);
  const Array<float> slices{std::vector<float>(3000 * 6, 2), Shape{3000, 6}};
  const OnDevice device_grad(grad), device_slices(slices);
  ExpectNoWait(
      [&](const Context& ctx) {
        return SparseSegmentGradV2Padded(SegmentCombiner::kSum, device_grad, batch.device_index(DType::kInt32),
                                         batch.device_segment(DType::kInt32), batch.dim0(), 500, ctx);
      },
      SparseSegmentGradV2Padded(SegmentCombiner::kSum, grad, batch.index(DType::kInt32), batch.segment(DType::kInt32),
                                batch.dim0(), 500),
      &Grad::output, &Grad::sorted_unique_indices);
  ExpectNoWait(
      [&](const Context& ctx) {
        return CoalescePadded({device_slices, batch.device_index(DType::kInt64), 500}, 500, ctx);
      },
      CoalescePadded({slices, batch.index(DType::kInt64), 500}, 500), &Slices::values, &Slices::indices);
}

TEST_F(GpuTest, APaddedGradientCanBeCapturedAndReplayed) {
  constexpr int64_t kMax = 480;
  const Batch batch = Batch::Zipf(3000, 500, 40, 3), other = Batch::Zipf(3000, 500, 40, 4);
  const Array<float> grad = WholeGrad<float>(batch, 6, 1), other_grad = WholeGrad<float>(batch, 6, 2);
  std::vector<int64_t> bad_ids = other.indices.wide, all_ids = other.indices.wide;
  bad_ids[2'345] = 500;
  for (size_t i = 0; i < 500; ++i) all_ids[i] = static_cast<int64_t>(i);  // 500 rows, more than there is room for
  const Ids bad = bad_ids, all = all_ids;
  for (const SegmentCombiner combiner : {SegmentCombiner::kSum, SegmentCombiner::kMean}) {
    const OnDevice device_grad(grad);
    const OnDevice index(batch.index(DType::kInt32)), segment(batch.segment(DType::kInt32));
    const auto run = [&](Context ctx) {
      ctx.accumulation = Accumulation::kSequential;
      return SparseSegmentGradV2Padded(combiner, device_grad, index, segment, batch.dim0(), kMax, ctx);
    };
    const auto on_cpu = [&](const Array<float>& values, const Ids& ids, const Ids& segments) {
      return SparseSegmentGradV2Padded(combiner, values, ids.As(DType::kInt32), segments.As(DType::kInt32),
                                       batch.dim0(), kMax);
    };
    ASSERT_THAT(run({}), IsOk());  // the first call loads kernels, which cannot be captured
    CapturedGraph graph;
    const auto padded = graph.Capture(run);
    ASSERT_THAT(padded, IsOk());
    for (const Ids* ids : {&other.indices, &batch.indices, &bad, &other.indices, &all, &batch.indices}) {
      graph.Overwrite(index, ids->As(DType::kInt32));
      graph.Replay();
      ExpectSameRows(padded, on_cpu(grad, *ids, batch.segment_ids));
    }
    graph.Overwrite(device_grad, other_grad);
    graph.Overwrite(segment, other.segment(DType::kInt32));
    graph.Replay();
    ExpectSameRows(padded, on_cpu(other_grad, batch.indices, other.segment_ids));
  }
}

TEST_F(GpuTest, PaddedSlicesCanBeCapturedAndReplayed) {
  constexpr int64_t kSlices = 3000, kRows = 500, kMax = 480;
  Generator random(5);
  const auto whole = [&] {
    Array<float> values({}, Shape{kSlices, 6});
    for (int64_t i = 0; i < kSlices * 6; ++i) values.values.push_back(static_cast<float>(random.Below(17) - 8));
    return values;
  };
  const Array<float> values = whole(), other_values = whole();
  const Array<int64_t> first = random.ZipfIds<int64_t>(kSlices, kRows),
                       second = random.ZipfIds<int64_t>(kSlices, kRows);
  Array<int64_t> bad = second, all = second;
  bad.values[17] = -1;
  for (size_t i = 0; i < kRows; ++i) all.values[i] = static_cast<int64_t>(i);
  const OnDevice device_values(values), indices(first);
  const auto run = [&](const Context& ctx) { return CoalescePadded({device_values, indices, kRows}, kMax, ctx); };
  ASSERT_THAT(run({}), IsOk());  // the first call loads kernels, which cannot be captured
  CapturedGraph graph;
  const auto padded = graph.Capture(run);
  ASSERT_THAT(padded, IsOk());
  for (const Array<int64_t>& ids : {second, first, bad, second, all, first}) {
    graph.Overwrite(indices, ids);
    graph.Replay();
    ExpectSameRows(padded, CoalescePadded({values, ids, kRows}, kMax));
  }
  graph.Overwrite(device_values, other_values);
  graph.Replay();
  ExpectSameRows(padded, CoalescePadded({other_values, first, kRows}, kMax));
}

TEST_F(GpuTest, CoalescePaddedReportsEveryAllocationFailure) {
  const Batch batch = Batch::Zipf(3000, 500, 40, 3);
  const OnDevice values(Array<float>{std::vector<float>(3000 * 6, 2), Shape{3000, 6}});
  ExpectEveryDeviceAllocationFailureIsReported([&](const Context& ctx) {
    return CoalescePadded({values, batch.device_index(DType::kInt64), 500}, 500, ctx).status();
  });
}

}  // namespace
}  // namespace raggrad::sparse_segment
