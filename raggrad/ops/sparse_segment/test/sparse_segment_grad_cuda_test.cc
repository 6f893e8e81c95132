// The gradients on a GPU: the CPU's bits with kSequential, its errors, and with kFast a sum that is always the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "raggrad/ops/sparse_segment/indexed_slices.h"
#include "raggrad/ops/sparse_segment/test/fast_order.h"
#include "raggrad/ops/sparse_segment/test/test_batch.h"
#include "raggrad/tensorflow_names.h"
#include "raggrad/testing/always_the_same.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::sparse_segment {
namespace {

using ::raggrad::testing::ExpectAlwaysTheSame;
using ::raggrad::testing::ExpectClose;
using ::raggrad::testing::ExpectEveryDeviceAllocationFailureIsReported;
using ::raggrad::testing::ExpectSame;
using ::raggrad::testing::GpuTest;
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::StatusIs;
using ::testing::HasSubstr;

// Compares GradV2 and Grad of the batch on the device with the CPU's.
template <class T>
void ExpectCpusAnswer(const Batch& batch, const Array<T>& grad, const Context& ctx) {
  const OnDevice device_grad(grad);
  for (const DType index : kIndexTypes) {
    const DType segment = index;
    for (const SegmentCombiner combiner : kCombiners) {
      SCOPED_TRACE("combiner " + std::to_string(static_cast<int>(combiner)) + ", " + std::string(DTypeName(index)));
      ExpectSameRows(SparseSegmentGradV2(combiner, device_grad, batch.device_index(index),
                                         batch.device_segment(segment), batch.dim0(), ctx),
                     SparseSegmentGradV2(combiner, grad, batch.index(index), batch.segment(segment), batch.dim0()));
      ExpectSame(SparseSegmentGrad(combiner, device_grad, batch.device_index(index), batch.device_segment(segment),
                                   batch.dim0(), ctx),
                 SparseSegmentGrad(combiner, grad, batch.index(index), batch.segment(segment), batch.dim0()));
    }
  }
}

template <class T>
Array<T> HostileGrad(const Batch& batch, int64_t width, uint64_t seed) {
  return {Generator(seed).HostileValues<T>(batch.num_segments * width), Shape{batch.num_segments, width}};
}

template <class T>
class SegmentGradCuda : public GpuTest {};
TYPED_TEST_SUITE(SegmentGradCuda, GtestTypes<FloatTypes>);

TYPED_TEST(SegmentGradCuda, SequentialHasTheCpusBits) {
  for (const auto& lengths : LengthsOfRows()) {
    const Batch batch = Batch::OfRows(lengths, 37, lengths.size());
    ExpectCpusAnswer(batch, HostileGrad<TypeParam>(batch, 4, 1), Sequential());
    ExpectCpusAnswer(batch, HostileGrad<TypeParam>(batch, 3, 2), Sequential());
  }
}

TYPED_TEST(SegmentGradCuda, FastSumsEveryContributionOnce) {
  for (const auto& lengths : LengthsOfRows()) {
    const Batch batch = Batch::OfRows(lengths, 40, lengths.size());
    for (const int64_t width : {4, 3}) {
      const Array<TypeParam> grad = WholeGrad<TypeParam>(batch, width, 1);
      ExpectSameRows(
          SparseSegmentSumGradV2(OnDevice(grad), batch.device_index(DType::kInt32), batch.device_segment(DType::kInt64),
                                 batch.dim0()),
          SparseSegmentSumGradV2(grad, batch.index(DType::kInt32), batch.segment(DType::kInt64), batch.dim0()));
    }
  }
}

TYPED_TEST(SegmentGradCuda, FastSumsInTheOrderItStates) {
  for (const auto& lengths : LengthsOfRows()) {
    const Batch batch = Batch::OfRows(lengths, 41, lengths.size());
    for (const int64_t width : {4, 3}) {
      const Array<TypeParam> grad{Generator(6).Values<TypeParam>(batch.num_segments * width),
                                  Shape{batch.num_segments, width}};
      for (const SegmentCombiner combiner : kCombiners) {
        const auto got = SparseSegmentGradV2(combiner, OnDevice(grad), batch.device_index(DType::kInt32),
                                             batch.device_segment(DType::kInt32), batch.dim0());
        ASSERT_THAT(got, IsOk());
        const std::vector<TypeParam> want =
            reference::FastRows(combiner, grad.view().template As<TypeParam>(), width, batch.indices.wide,
                                batch.segment_ids.wide, batch.num_segments);
        ExpectSame(got->output.view(), Array<TypeParam>{want, Shape{std::ssize(want) / width, width}});
      }
    }
  }
}

TYPED_TEST(SegmentGradCuda, EveryWidth) {
  const Batch batch = Batch::OfRows({3, 700, 1, 0, 1, 40, 600}, 50, 4);
  for (const int64_t width : {0, 1, 2, 5, 8, 12, 33, 64, 100, 128, 129, 300, 1023, 1028}) {
    SCOPED_TRACE("width " + std::to_string(width));
    const Array<TypeParam> grad = WholeGrad<TypeParam>(batch, width, 2);
    const OnDevice device_grad(grad);
    for (const Context& ctx : {Context{}, Sequential()}) {
      ExpectSame(SparseSegmentSumGrad(device_grad, batch.device_index(DType::kInt64),
                                      batch.device_segment(DType::kInt32), batch.dim0(), ctx),
                 SparseSegmentSumGrad(grad, batch.index(DType::kInt64), batch.segment(DType::kInt32), batch.dim0()));
    }
  }
}

TYPED_TEST(SegmentGradCuda, AnOperandNeedNotBeAligned) {
  const Batch batch = Batch::OfRows({3, 700, 1, 0, 1, 40, 600}, 50, 4);
  const Array<TypeParam> values{Generator(1).HostileValues<TypeParam>(1 + batch.num_segments * 8)};
  const OnDevice device_values(values);
  const auto behind_first = [&](const TensorView& view) {
    return TensorView{view.As<TypeParam>() + 1, view.dtype, Shape{batch.num_segments, 8}, view.device};
  };
  ExpectSameRows(SparseSegmentMeanGradV2(behind_first(device_values), batch.device_index(DType::kInt32),
                                         batch.device_segment(DType::kInt32), batch.dim0(), Sequential()),
                 SparseSegmentMeanGradV2(behind_first(values), batch.index(DType::kInt32), batch.segment(DType::kInt32),
                                         batch.dim0()));
}

// Half a unit in the last place: of the type of the sums, and of the type of the result.
template <class T>
constexpr double kHalfUnit = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;
template <class T>
constexpr double kRounding = std::is_same_v<T, Half>       ? 0x1p-11
                             : std::is_same_v<T, BFloat16> ? 0x1p-8
                             : std::is_same_v<T, float>    ? 0x1p-24
                                                           : 0x1p-53;

TYPED_TEST(SegmentGradCuda, FastIsCloseAndAlwaysTheSame) {
  const int64_t n = 200'000;
  const Batch batch = Batch::Zipf(n, 5000, 3000, 7);
  const Array<TypeParam> grad{Generator(5).Values<TypeParam>(batch.num_segments * 20), Shape{batch.num_segments, 20}};
  const OnDevice device_grad(grad);
  for (const SegmentCombiner combiner : kCombiners) {
    const auto run = [&](const Context& ctx) {
      return SparseSegmentGradV2(combiner, device_grad, batch.device_index(DType::kInt32),
                                 batch.device_segment(DType::kInt32), batch.dim0(), ctx);
    };
    const auto want =
        SparseSegmentGradV2(combiner, grad, batch.index(DType::kInt32), batch.segment(DType::kInt32), batch.dim0());
    const auto got = run({});
    ASSERT_THAT(got, IsOk());
    ExpectSame(got->sorted_unique_indices.view(), want->sorted_unique_indices.view());
    // Each addition is off by at most half a unit of the sum of magnitudes, in both results. A row has at most n / 9
    // contributions of magnitude 2.
    const double longest = static_cast<double>(n) / 8;
    ExpectClose(got->output.view(), want->output.view(), 2 * kRounding<TypeParam>,
                longest * kHalfUnit<TypeParam> * longest * 2);
    ExpectAlwaysTheSame(run, [](const SparseSegmentGradV2Output& result) {
      return std::vector{result.output.view(), result.sorted_unique_indices.view()};
    });
  }
}

TEST_F(GpuTest, SegmentGradOfVeryHotRows) {
  const Batch batch = Batch::OfRows({700'000, 1, 0, 300'000}, 1000, 2);
  for (const int64_t width : {1, 4}) {
    const Array<float> grad = WholeGrad<float>(batch, width, 1);
    ExpectSameRows(
        SparseSegmentSumGradV2(OnDevice(grad), batch.device_index(DType::kInt64), batch.device_segment(DType::kInt64),
                               batch.dim0()),
        SparseSegmentSumGradV2(grad, batch.index(DType::kInt64), batch.segment(DType::kInt64), batch.dim0()));
  }
}

// Half of these values is less than the smallest normal number by less than the last bit: it counts as subnormal.
TEST_F(GpuTest, SegmentGradFlushesProductsAsTheCpuDoes) {
  const Array<float> grad{{std::ldexp(0x1p24F - 1, -149), -std::ldexp(0x1p24F - 1, -149)}, Shape{1, 2}};
  const Array<double> wide{{std::ldexp(0x1p53 - 1, -1074), -std::ldexp(0x1p53 - 1, -1074)}, Shape{1, 2}};
  const Array<int32_t> indices{{0, 1}}, segment_ids{{0, 0}};
  const int32_t rows = 2;
  for (const TensorView& values : {grad.view(), wide.view()}) {
    ExpectSameRows(SparseSegmentMeanGradV2(OnDevice(values), OnDevice(indices), OnDevice(segment_ids),
                                           TensorView::Scalar(rows), Sequential()),
                   SparseSegmentMeanGradV2(values, indices, segment_ids, TensorView::Scalar(rows)));
  }
}

TEST_F(GpuTest, SegmentGradOfEveryNumberOfIdsAndOfRows) {
  const auto expect = [](int64_t ids, int32_t rows) {
    SCOPED_TRACE(std::to_string(ids) + " ids, " + std::to_string(rows) + " rows");
    Generator random(static_cast<uint64_t>(ids + rows));
    std::vector<int64_t> index = random.UniformIds<int64_t>(ids, rows);
    index[0] = rows - 1;
    const Batch batch(std::move(index), random.UniformIds<int64_t>(ids, 100), rows, 100);
    const Array<float> grad = HostileGrad<float>(batch, 1, 1);
    for (const DType type : kIndexTypes) {
      ExpectSameRows(SparseSegmentSumGradV2(OnDevice(grad), batch.device_index(type), batch.device_segment(type),
                                            batch.dim0(), Sequential()),
                     SparseSegmentSumGradV2(grad, batch.index(type), batch.segment(type), batch.dim0()));
    }
  };
  for (const int64_t ids : {1, 2, 31, 255, 256, 257, 1023, 1025, 4095, 4096, 4097, 8191, 8193, 70'001, 1'000'003}) {
    expect(ids, 1000);
  }
  for (int bits = 0; bits < 31; ++bits) expect(20'000, int32_t{1} << bits);
  for (const int bits : {8, 11, 16, 22}) expect(20'000, (int32_t{1} << bits) + 1);
  expect(20'000, INT32_MAX);
}

// An output above 4 MiB is allocated only when the number of its rows has been read.
TEST_F(GpuTest, SegmentGradOfAnOutputThatWaitsForItsSize) {
  constexpr int64_t kIds = 200'003;
  const Batch batch(Generator(8).UniformIds<int64_t>(kIds, 150'000), Generator(9).UniformIds<int64_t>(kIds, 900),
                    150'000, 900);
  ExpectCpusAnswer(batch, HostileGrad<float>(batch, 12, 3), Sequential());
}

TEST_F(GpuTest, SegmentGradOfNothing) {
  const Batch no_ids({}, {}, 3, 2);
  const Batch no_rows({1, 5}, {7, 0}, 0, 2);
  const Array<float> grad{{1, 2, 3, 4}, Shape{2, 2}};
  for (const Context& ctx : {Context{}, Sequential()}) {
    ExpectCpusAnswer(no_ids, grad, ctx);
    ExpectCpusAnswer(no_rows, grad, ctx);
  }
}

TEST_F(GpuTest, SegmentGradReportsTheCpusFault) {
  const int64_t n = 5000;
  Generator random(1);
  const std::vector<int64_t> good_indices = random.UniformIds<int64_t>(n, 100);
  const std::vector<int64_t> good_segments = random.UniformIds<int64_t>(n, 60);
  const Array<float> grad{random.Values<float>(60), Shape{60, 1}};
  const auto expect = [&](std::vector<std::pair<int64_t, int64_t>> bad_indices,
                          std::vector<std::pair<int64_t, int64_t>> bad_segments) {
    auto indices = good_indices, segments = good_segments;
    for (const auto& [i, value] : bad_indices) indices[static_cast<size_t>(i)] = value;
    for (const auto& [i, value] : bad_segments) segments[static_cast<size_t>(i)] = value;
    ExpectCpusAnswer(Batch(indices, segments, 100, 60), grad, {});
  };
  expect({{4000, 100}, {700, -1}, {4999, 1000}}, {});
  expect({{17, 100}}, {{17, 60}});
  expect({{900, -5}}, {{899, -1}, {4000, 99}});
  expect({{900, -5}}, {{901, 60}});
  expect({{0, 100}}, {{n - 1, 60}});
  expect({}, {{n - 1, -1}});
  ExpectCpusAnswer(Batch({3, 4}, {0, 0}, 10, 0), Array<float>{{}, Shape{0, 1}}, {});
}

TEST_F(GpuTest, SegmentGradReportsEveryAllocationFailure) {
  const Batch batch = Batch::OfRows({3, 700, 1, 0, 1, 40, 600}, 50, 4);
  const Array<float> grad = WholeGrad<float>(batch, 6, 1);
  const OnDevice device_grad(grad);
  OnDevice table(Array<float>{std::vector<float>(7 * 6), Shape{7, 6}});
  const TensorView index = batch.device_index(DType::kInt32), segment = batch.device_segment(DType::kInt64);
  constexpr SegmentCombiner kMean = SegmentCombiner::kMean;
  for (const Accumulation accumulation : {Accumulation::kFast, Accumulation::kSequential}) {
    const auto expect = [&](const auto& call) {
      ExpectEveryDeviceAllocationFailureIsReported([&](Context ctx) {
        ctx.accumulation = accumulation;
        return call(ctx);
      });
    };
    expect([&](const Context& ctx) {
      return SparseSegmentGradV2(kMean, device_grad, index, segment, batch.dim0(), ctx).status();
    });
    expect([&](const Context& ctx) {
      return SparseSegmentGrad(kMean, device_grad, index, segment, batch.dim0(), ctx).status();
    });
    expect([&](const Context& ctx) {
      return SparseSegmentGradV2Padded(kMean, device_grad, index, segment, batch.dim0(), 7, ctx).status();
    });
    expect([&](const Context& ctx) {
      const MutableTensorView rows = {table.tensor().data(), DType::kFloat32, Shape{7, 6}, Device::Cuda()};
      return SparseSegmentGradApply(kMean, device_grad, index, segment, Sgd{0.5}, rows, ctx);
    });
  }
  ExpectEveryDeviceAllocationFailureIsReported([&](const Context& ctx) {
    return SegmentPlan::Make(index, segment, {.table_rows = 7, .num_segments = 50}, ctx).status();
  });
}

// A new thread may reuse the pinned memory of one that has ended. It still gets its own number of rows and its own
// fault.
TEST_F(GpuTest, ShortLivedThreadsGetTheirOwnReports) {
  constexpr int kThreads = 4, kRounds = 50;
  constexpr int32_t kRows = 200, kIds = 300;
  const OnDevice grad(Array<float>{{1}, Shape{1, 1}});
  const OnDevice segment_ids(Array<int32_t>{std::vector<int32_t>(kIds)});
  // Thread i names i + 1 rows; every third thread also names one that does not exist.
  const auto call = [&](int32_t i) {
    std::vector<int32_t> ids(kIds);
    for (int32_t k = 0; k < kIds; ++k) ids[static_cast<size_t>(k)] = k % (i + 1);
    const bool bad = i % 3 == 0;
    if (bad) ids.back() = kRows + i;
    const OnDevice indices(Array<int32_t>{ids});
    const auto got = SparseSegmentGradV2(SegmentCombiner::kSum, grad, indices, segment_ids, TensorView::Scalar(kRows));
    if (bad) {
      EXPECT_THAT(got, StatusIs(Code::kInvalidArgument, HasSubstr("Index " + std::to_string(kRows + i) + " out of")));
    } else {
      ASSERT_THAT(got, IsOk());
      EXPECT_EQ(got->output.shape()[0], i + 1);
    }
  };
  for (int32_t round = 0; round < kRounds; ++round) {
    std::vector<std::jthread> threads;
    for (int32_t k = 0; k < kThreads; ++k) threads.emplace_back(call, round * (kThreads - 1) + k);
  }
}

}  // namespace
}  // namespace raggrad::sparse_segment
