// Accumulation::kReproducible on a GPU: the CPU's bits, in every form, for every order of the ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "raggrad/ops/sparse_segment/indexed_slices.h"
#include "raggrad/ops/sparse_segment/segment_plan.h"
#include "raggrad/ops/sparse_segment/test/reproducible.h"
#include "raggrad/ops/sparse_segment/test/test_batch.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/padded_on_device.h"
#include "raggrad/testing/status_matchers.h"
#include "raggrad/testing/wide_values.h"

namespace raggrad::sparse_segment {
namespace {

using ::raggrad::testing::ExpectEveryDeviceAllocationFailureIsReported;
using ::raggrad::testing::ExpectSame;
using ::raggrad::testing::ExpectSamePadded;
using ::raggrad::testing::GpuTest;
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::kWideRanges;
using ::raggrad::testing::WideValues;

Context Reproducible() {
  Context ctx;
  ctx.accumulation = Accumulation::kReproducible;
  return ctx;
}

template <class T>
Array<T> WideRows(int64_t rows, int64_t width, int range, std::mt19937& random) {
  return {WideValues<T>(static_cast<size_t>(rows * width), range, random), Shape{rows, width}};
}

template <class T>
void ExpectCpusRows(SegmentCombiner combiner, const Batch& batch, const Array<T>& grad) {
  const OnDevice device_grad(grad);
  ExpectSameRows(SparseSegmentGradV2(combiner, device_grad, batch.device_index(DType::kInt32),
                                     batch.device_segment(DType::kInt32), batch.dim0(), Reproducible()),
                 SparseSegmentGradV2(combiner, grad, batch.index(DType::kInt32), batch.segment(DType::kInt32),
                                     batch.dim0(), Reproducible()));
}

template <class T>
class ReproducibleCuda : public GpuTest {};
TYPED_TEST_SUITE(ReproducibleCuda, GtestTypes<FloatTypes>);

TYPED_TEST(ReproducibleCuda, RowsOfEveryLength) {
  std::mt19937 random(1);
  for (const auto& lengths : LengthsOfRows()) {
    SCOPED_TRACE("rows: " + std::to_string(lengths.size()) + ", the first has " + std::to_string(lengths[0]));
    const Batch batch = Batch::OfRows(lengths, 37, lengths.size());
    for (int range = 0; range < kWideRanges; ++range) {
      for (const int64_t width : {4, 3}) {
        ExpectCpusRows(kCombiners[range % 3], batch, WideRows<TypeParam>(37, width, range, random));
      }
    }
  }
}

TYPED_TEST(ReproducibleCuda, EveryWidth) {
  std::mt19937 random(2);
  const Batch batch = Batch::OfRows({3, 700, 1, 0, 1, 40, 600}, 50, 4);
  for (const int64_t width : {0, 1, 2, 5, 7, 8, 12, 31, 33, 64, 100, 127, 128, 129, 256, 300, 511, 1023, 1028}) {
    SCOPED_TRACE("width " + std::to_string(width));
    for (const SegmentCombiner combiner : kCombiners) {
      ExpectCpusRows(combiner, batch, WideRows<TypeParam>(50, width, static_cast<int>(width) % kWideRanges, random));
    }
  }
}

TYPED_TEST(ReproducibleCuda, AnOperandNeedNotBeAligned) {
  std::mt19937 random(3);
  const Batch batch = Batch::OfRows({3, 700, 1, 0, 1, 40, 600}, 50, 4);
  const Array<TypeParam> values{WideValues<TypeParam>(1 + 50 * 8, 1, random)};
  const OnDevice device_values(values);
  const auto behind_first = [&](const TensorView& view) {
    return TensorView{view.As<TypeParam>() + 1, view.dtype, Shape{50, 8}, view.device};
  };
  ExpectSameRows(
      SparseSegmentGradV2(SegmentCombiner::kMean, behind_first(device_values), batch.device_index(DType::kInt32),
                          batch.device_segment(DType::kInt32), batch.dim0(), Reproducible()),
      SparseSegmentGradV2(SegmentCombiner::kMean, behind_first(values), batch.index(DType::kInt32),
                          batch.segment(DType::kInt32), batch.dim0(), Reproducible()));
}

TYPED_TEST(ReproducibleCuda, EveryFormHasTheCpusBits) {
  std::mt19937 random(4);
  for (const int64_t n : {30, 20'000}) {
    const Batch batch = Batch::Zipf(n, 300, 50, 5);
    const Array<TypeParam> grad = WideRows<TypeParam>(50, 6, 0, random);
    const OnDevice device_grad(grad);
    const Array<TypeParam> slices = WideRows<TypeParam>(n, 6, 1, random);
    const OnDevice device_slices(slices);
    const TensorView index = batch.index(DType::kInt64), segment = batch.segment(DType::kInt32);
    const TensorView device_index = batch.device_index(DType::kInt64),
                     device_segment = batch.device_segment(DType::kInt32);
    const Context ctx = Reproducible();
    const SegmentPlan::Sizes sizes = {.table_rows = 300, .num_segments = 50};
    const auto plan = SegmentPlan::Make(device_index, device_segment, sizes);
    ASSERT_THAT(plan, IsOk());
    using Padded = SparseSegmentGradV2PaddedOutput;
    for (const SegmentCombiner combiner : kCombiners) {
      const auto want = SparseSegmentGradV2(combiner, grad, index, segment, batch.dim0(), ctx);
      ExpectSameRows(SparseSegmentGradV2(combiner, device_grad, *plan, ctx), want);
      ExpectSame(SparseSegmentGrad(combiner, device_grad, device_index, device_segment, batch.dim0(), ctx),
                 SparseSegmentGrad(combiner, grad, index, segment, batch.dim0(), ctx));
      ExpectSamePadded(
          SparseSegmentGradV2Padded(combiner, device_grad, device_index, device_segment, batch.dim0(), 300, ctx),
          SparseSegmentGradV2Padded(combiner, grad, index, segment, batch.dim0(), 300, ctx), {}, &Padded::output,
          &Padded::sorted_unique_indices);
      for (const bool planned : {false, true}) {
        const Array<TypeParam> start = WideRows<TypeParam>(300, 6, 0, random);
        std::vector<TypeParam> table = start.values;
        const MutableTensorView host = MutableTensorView::Of(table.data(), start.shape);
        ASSERT_THAT(SparseSegmentGradApply(combiner, grad, index, segment, Sgd{0.5}, host, ctx), IsOk());
        OnDevice got(start);
        const MutableTensorView device = {got.tensor().data(), start.view().dtype, start.shape, Device::Cuda()};
        ASSERT_THAT(planned ? SparseSegmentGradApply(combiner, device_grad, *plan, Sgd{0.5}, device, ctx)
                            : SparseSegmentGradApply(combiner, device_grad, device_index, device_segment, Sgd{0.5},
                                                     device, ctx),
                    IsOk());
        ExpectSame(got.view(), host.view());
      }
    }
    const IndexedSlicesView on_host = {slices, index, 300}, on_device = {device_slices, device_index, 300};
    ExpectSame(ToDense(on_device, ctx), ToDense(on_host, ctx));
    ExpectSame(Coalesce(on_device, ctx), Coalesce(on_host, ctx), &IndexedSlices::values, &IndexedSlices::indices);
    using Coalesced = CoalescePaddedOutput;
    ExpectSamePadded(CoalescePadded(on_device, 300, ctx), CoalescePadded(on_host, 300, ctx), {}, &Coalesced::values,
                     &Coalesced::indices);
  }
}

TYPED_TEST(ReproducibleCuda, HotRowsInEveryOrder) {
  std::mt19937 random(5);
  Batch batch = Batch::OfRows({200'000, 1, 0, 90'000, 700}, 1000, 2);
  for (const int64_t width : {1, 4, 20}) {
    const Array<TypeParam> grad = WideRows<TypeParam>(1000, width, 0, random);
    ExpectCpusRows(SegmentCombiner::kMean, batch, grad);
    std::vector<size_t> order(batch.indices.wide.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::vector<int64_t> indices, segments;
    for (const size_t i : order) {
      indices.push_back(batch.indices.wide[i]);
      segments.push_back(batch.segment_ids.wide[i]);
    }
    const Batch shuffled(std::move(indices), std::move(segments), batch.table_rows, batch.num_segments);
    const OnDevice device_grad(grad);
    ExpectSameRows(SparseSegmentGradV2(SegmentCombiner::kMean, device_grad, shuffled.device_index(DType::kInt32),
                                       shuffled.device_segment(DType::kInt32), batch.dim0(), Reproducible()),
                   SparseSegmentGradV2(SegmentCombiner::kMean, grad, batch.index(DType::kInt32),
                                       batch.segment(DType::kInt32), batch.dim0(), Reproducible()));
  }
}

TYPED_TEST(ReproducibleCuda, Forwards) {
  std::mt19937 random(6);
  std::vector<int64_t> lengths(70);
  std::iota(lengths.begin(), lengths.end(), int64_t{0});
  for (const int64_t length : {511, 512, 0, 5'007, 1}) lengths.push_back(length);
  const Ids segment_ids = Generator::RowIds<int64_t>(lengths);
  const Ids indices = Generator(7).UniformIds<int64_t>(std::ssize(segment_ids.wide), 60);
  for (const int64_t width : {1, 2, 3, 4, 7, 8, 20, 32, 33, 64, 130, 257, 512, 1023}) {
    SCOPED_TRACE("width " + std::to_string(width));
    const Array<TypeParam> data = WideRows<TypeParam>(60, width, static_cast<int>(width) % kWideRanges, random);
    const OnDevice device_data(data);
    for (const DType type : kIndexTypes) {
      const OnDevice device_indices(indices.As(type)), device_segments(segment_ids.As(type));
      for (const SegmentCombiner combiner : kCombiners) {
        ExpectSame(SparseSegment(combiner, device_data, device_indices, device_segments, Reproducible()),
                   SparseSegment(combiner, data, indices.As(type), segment_ids.As(type), Reproducible()));
      }
    }
  }
}

// Numbers that lie on the grid already are not rounded to it.
TYPED_TEST(ReproducibleCuda, NumbersAtTheEdgeOfTheGrid) {
  for (const int64_t rows : {1, 2, 3, 40, 600}) {
    for (const int64_t width : {2, 68}) {
      std::vector<int64_t> order(static_cast<size_t>(rows));
      std::iota(order.begin(), order.end(), int64_t{0});
      const Batch sums(std::vector<int64_t>(order.size()), order, 1, rows);
      const Batch pools(order, std::vector<int64_t>(order.size()), static_cast<int32_t>(rows), 1);
      for (int depth = 0; depth < 60; depth += 1 + (rows > 3 ? 1 : 0)) {
        SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(width) + ", depth " + std::to_string(depth));
        const Array<TypeParam> data = {reference::RowsBelowOne<TypeParam>(rows, width, depth), Shape{rows, width}};
        ExpectCpusRows(SegmentCombiner::kSum, sums, data);
        const SegmentCombiner combiner = kCombiners[depth % 3];
        ExpectSame(
            SparseSegment(combiner, OnDevice(data), pools.device_index(DType::kInt32),
                          pools.device_segment(DType::kInt64), Reproducible()),
            SparseSegment(combiner, data, pools.index(DType::kInt32), pools.segment(DType::kInt64), Reproducible()));
      }
    }
  }
}

// RAGGRAD_RANDOM_CASES is the number of cases for each of the four types, each with a gradient and a forward.
TYPED_TEST(ReproducibleCuda, RandomCases) {
  const char* const wanted = std::getenv("RAGGRAD_RANDOM_CASES");
  const int cases = wanted != nullptr ? std::atoi(wanted) : 500;
  std::mt19937 random(7);
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint64_t>(limit)); };
  for (int i = 0; i < cases && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const int64_t width = 1 + below(i % 10 == 0 ? 1023 : 40), segments = 1 + below(60), rows = 1 + below(40);
    const int64_t n = 1 + below(i % 7 == 0 ? 4'000 : 200), only = i % 5 == 0 ? below(rows) : -1;
    std::vector<int64_t> index(static_cast<size_t>(n)), segment(index.size());
    for (int64_t& id : index) id = only >= 0 ? only : below(rows);
    for (int64_t& id : segment) id = below(segments);
    if (i % 2 == 0) std::sort(segment.begin(), segment.end());
    const Batch batch(std::move(index), std::move(segment), static_cast<int32_t>(rows), segments);
    const SegmentCombiner combiner = kCombiners[below(3)];
    ExpectCpusRows(combiner, batch, WideRows<TypeParam>(segments, width, i % kWideRanges, random));
    if (i % 2 != 0) continue;
    const Array<TypeParam> data = WideRows<TypeParam>(rows, width, (i / 2) % kWideRanges, random);
    ExpectSame(SparseSegment(combiner, OnDevice(data), batch.device_index(DType::kInt32),
                             batch.device_segment(DType::kInt64), Reproducible()),
               SparseSegment(combiner, data, batch.index(DType::kInt32), batch.segment(DType::kInt64), Reproducible()));
  }
}

TEST_F(GpuTest, ReproducibleCallsReportEveryAllocationFailure) {
  const Batch batch = Batch::OfRows({3, 700, 1, 0, 1, 40, 600}, 50, 4);
  const OnDevice grad(WholeGrad<float>(batch, 6, 1));
  const TensorView index = batch.device_index(DType::kInt32), segment = batch.device_segment(DType::kInt64);
  ExpectEveryDeviceAllocationFailureIsReported([&](Context ctx) {
    ctx.accumulation = Accumulation::kReproducible;
    return SparseSegmentGradV2(SegmentCombiner::kMean, grad, index, segment, batch.dim0(), ctx).status();
  });
  ExpectEveryDeviceAllocationFailureIsReported([&](Context ctx) {
    ctx.accumulation = Accumulation::kReproducible;
    return SparseSegment(SegmentCombiner::kMean, grad, segment, segment, ctx).status();
  });
}

}  // namespace
}  // namespace raggrad::sparse_segment
