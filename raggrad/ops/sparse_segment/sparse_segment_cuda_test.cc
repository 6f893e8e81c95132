// The gradients on a GPU: the CPU's bits with kSequential, its errors, and with kFast a sum that is always the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "raggrad/ops/sparse_segment/indexed_slices.h"
#include "raggrad/ops/sparse_segment/test_ids.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/captured_graph.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/on_device.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::sparse_segment::Ids;
using ::raggrad::testing::Array;
using ::raggrad::testing::CapturedGraph;
using ::raggrad::testing::ExpectClose;
using ::raggrad::testing::ExpectSame;
using ::raggrad::testing::Generator;
using ::raggrad::testing::GpuTest;
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::OnDevice;
using ::raggrad::testing::OnHost;
using ::raggrad::testing::SameTensor;
using ::raggrad::testing::StatusIs;
using ::testing::HasSubstr;

constexpr SegmentCombiner kCombiners[] = {SegmentCombiner::kSum, SegmentCombiner::kMean, SegmentCombiner::kSqrtN};
constexpr DType kIndexTypes[] = {DType::kInt32, DType::kInt64};

Context Sequential() {
  Context ctx;
  ctx.accumulation = Accumulation::kSequential;
  return ctx;
}

// Ids in host and in device memory.
struct Batch {
  Ids indices;
  Ids segment_ids;
  int32_t rows;
  int64_t segments;
  OnDevice device_indices[2];
  OnDevice device_segment_ids[2];

  Batch(std::vector<int64_t> index, std::vector<int64_t> segment, int32_t num_rows, int64_t num_segments)
      : indices(std::move(index)),
        segment_ids(std::move(segment)),
        rows(num_rows),
        segments(num_segments),
        device_indices{OnDevice(indices.As(DType::kInt32)), OnDevice(indices.As(DType::kInt64))},
        device_segment_ids{OnDevice(segment_ids.As(DType::kInt32)), OnDevice(segment_ids.As(DType::kInt64))} {}

  // Row r is named lengths[r] times; the ids are shuffled, segments come as they like.
  static Batch OfRows(const std::vector<int64_t>& lengths, int64_t segments, uint64_t seed) {
    Generator random(seed);
    std::vector<int64_t> index = Generator::RowIds<int64_t>(lengths);
    for (size_t i = index.size(); i > 1; --i) {
      std::swap(index[i - 1], index[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
    }
    std::vector<int64_t> segment = random.UniformIds<int64_t>(std::ssize(index), segments);
    if (seed % 2 == 0) std::sort(segment.begin(), segment.end());
    return Batch(std::move(index), std::move(segment), static_cast<int32_t>(lengths.size()), segments);
  }
  static Batch Zipf(int64_t n, int32_t rows, int64_t segments, uint64_t seed) {
    Generator random(seed);
    std::vector<int64_t> segment = random.UniformIds<int64_t>(n, segments);
    std::sort(segment.begin(), segment.end());
    return Batch(random.ZipfIds<int64_t>(n, rows), std::move(segment), rows, segments);
  }

  TensorView index(DType dtype) const { return indices.As(dtype); }
  TensorView segment(DType dtype) const { return segment_ids.As(dtype); }
  const TensorView& device_index(DType dtype) const { return device_indices[dtype == DType::kInt64].view(); }
  const TensorView& device_segment(DType dtype) const { return device_segment_ids[dtype == DType::kInt64].view(); }
  TensorView dim0() const { return TensorView::Scalar(rows); }
};

void ExpectSameRows(const Result<SparseSegmentGradV2Output>& got, const Result<SparseSegmentGradV2Output>& want) {
  EXPECT_EQ(got.status().message(), want.status().message());
  EXPECT_EQ(got.status().code(), want.status().code());
  if (!got.ok() || !want.ok()) return;
  ExpectSame(got->sorted_unique_indices.view(), want->sorted_unique_indices.view());
  ExpectSame(got->output.view(), want->output.view());
}

// GradV2 and Grad of the batch on the device, against those on the CPU.
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
  return {Generator(seed).HostileValues<T>(batch.segments * width), Shape{batch.segments, width}};
}

// Small whole numbers: their sums are exact in any order, so that kFast has the CPU's bits too.
template <class T>
Array<T> WholeGrad(const Batch& batch, int64_t width, uint64_t seed) {
  Generator random(seed);
  std::vector<T> values;
  for (int64_t i = 0; i < batch.segments * width; ++i) {
    const float value = static_cast<float>(random.Below(17) - 8);
    if constexpr (std::is_same_v<T, Half>) {
      values.push_back(cpu::BaselineConvert::NarrowToHalf(value));
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      values.push_back(cpu::BaselineConvert::NarrowToBFloat16(value));
    } else {
      values.push_back(value);
    }
  }
  return {std::move(values), Shape{batch.segments, width}};
}

// Rows that begin, end and go on at every kind of place in tiles of 32 and groups of 512 contributions.
std::vector<std::vector<int64_t>> LengthsOfRows() {
  std::vector<std::vector<int64_t>> all = {
      {1},
      {2, 0, 1},
      {31, 1, 32, 1, 33},
      {32, 32, 64},
      {511, 1, 1},
      {512},
      {513},
      {1024, 1},
      {511, 512, 513, 2},
      {5000},
      {1, 5000, 1, 31, 32},
      {16, 496, 480, 31, 1, 512},
      {9000},
      {20, 9000},
      {100, 400, 30'000},
      {0, 0, 1, 0, 700, 0},
  };
  Generator random(3);
  for (const double mean : {1.5, 20.0, 300.0}) {
    all.push_back(random.RowLengths(static_cast<int64_t>(3000 / mean) + 2, mean));
  }
  return all;
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

TYPED_TEST(SegmentGradCuda, EveryWidth) {
  const Batch batch = Batch::OfRows({3, 700, 1, 0, 1, 40, 600}, 50, 4);
  for (const int64_t width : {0, 1, 2, 5, 8, 12, 33, 64, 100, 128, 129, 300, 1028}) {
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
  const Array<TypeParam> numbers{Generator(1).HostileValues<TypeParam>(1 + batch.segments * 8)};
  const OnDevice device_numbers(numbers);
  const auto behind_first = [&](const TensorView& view) {
    return TensorView{view.As<TypeParam>() + 1, view.dtype, Shape{batch.segments, 8}, view.device};
  };
  ExpectSameRows(SparseSegmentMeanGradV2(behind_first(device_numbers), batch.device_index(DType::kInt32),
                                         batch.device_segment(DType::kInt32), batch.dim0(), Sequential()),
                 SparseSegmentMeanGradV2(behind_first(numbers), batch.index(DType::kInt32),
                                         batch.segment(DType::kInt32), batch.dim0()));
}

// Half a unit in the last place of the type of the sums, and of that of the result.
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
  const Array<TypeParam> grad{Generator(5).Values<TypeParam>(batch.segments * 20), Shape{batch.segments, 20}};
  const OnDevice device_grad(grad);
  for (const SegmentCombiner combiner : kCombiners) {
    const auto run = [&] {
      return SparseSegmentGradV2(combiner, device_grad, batch.device_index(DType::kInt32),
                                 batch.device_segment(DType::kInt32), batch.dim0());
    };
    const auto want =
        SparseSegmentGradV2(combiner, grad, batch.index(DType::kInt32), batch.segment(DType::kInt32), batch.dim0());
    const auto got = run();
    ASSERT_THAT(got, IsOk());
    ExpectSame(got->sorted_unique_indices.view(), want->sorted_unique_indices.view());
    // Both are off by at most half a unit of the sum of magnitudes for each addition; a row has n / 9 contributions of
    // magnitude 2 at most.
    const double longest = static_cast<double>(n) / 8;
    ExpectClose(got->output.view(), want->output.view(), 2 * kRounding<TypeParam>,
                longest * kHalfUnit<TypeParam> * longest * 2);
    const Tensor first = OnHost(got->output.view());
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(SameTensor(OnHost(run()->output.view()).view(), first.view()));
  }
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

TEST_F(GpuTest, SegmentPlanOnTheDevice) {
  const Batch batch = Batch::Zipf(20'000, 500, 300, 3);
  const Array<float> grad{Generator(2).HostileValues<float>(300 * 8), Shape{300, 8}};
  const OnDevice device_grad(grad);
  for (const DType index : kIndexTypes) {
    const auto plan = SegmentPlan::Make(batch.device_index(index), batch.device_segment(DType::kInt64),
                                        {.rows = 500, .segments = 300});
    ASSERT_THAT(plan, IsOk());
    EXPECT_TRUE(plan->ascending());
    for (const SegmentCombiner combiner : kCombiners) {
      const auto want =
          SparseSegmentGradV2(combiner, grad, batch.index(index), batch.segment(DType::kInt64), batch.dim0());
      ExpectSameRows(SparseSegmentGradV2(combiner, device_grad, *plan, Sequential()), want);
      EXPECT_EQ(plan->num_unique(), want->output.shape()[0]);
      const auto fast = SparseSegmentGradV2(combiner, device_grad, batch.device_index(index),
                                            batch.device_segment(DType::kInt64), batch.dim0());
      const auto fast_with_plan = SparseSegmentGradV2(combiner, device_grad, *plan);
      EXPECT_TRUE(SameTensor(OnHost(fast_with_plan->output.view()).view(), OnHost(fast->output.view()).view()));
      ExpectSame(SparseSegmentGrad(combiner, device_grad, *plan, Sequential()),
                 SparseSegmentGrad(combiner, grad, batch.index(index), batch.segment(DType::kInt64), batch.dim0()));
    }
    EXPECT_THAT(plan->CheckMadeFrom(batch.device_index(DType::kInt32), batch.device_segment(DType::kInt32)), IsOk());
    Ids other = batch.indices;
    other.wide[12'345] ^= 1;
    other.wide[19'999] ^= 1;
    EXPECT_THAT(plan->CheckMadeFrom(OnDevice(other.As(DType::kInt64)), batch.device_segment(DType::kInt32)),
                StatusIs(Code::kInvalidArgument,
                         HasSubstr("[indices[12345]: expected " + std::to_string(batch.indices.wide[12'345]))));
    EXPECT_THAT(SparseSegmentGradV2(SegmentCombiner::kMean, grad, *plan),
                StatusIs(Code::kInvalidArgument, HasSubstr("different devices")));
    EXPECT_THAT(plan->CheckMadeFrom(batch.index(DType::kInt32), batch.segment(DType::kInt32)),
                StatusIs(Code::kInvalidArgument, HasSubstr("different devices")));
  }
  const auto no_plan = [](const TensorView& indices, const TensorView& segment_ids) {
    return SegmentPlan::Make(indices, segment_ids, {.rows = 499, .segments = 300}).status();
  };
  const Status got = no_plan(batch.device_index(DType::kInt32), batch.device_segment(DType::kInt32));
  EXPECT_EQ(got.message(), no_plan(batch.index(DType::kInt32), batch.segment(DType::kInt32)).message());
  EXPECT_EQ(SegmentPlan::Make(OnDevice(Array<int32_t>{{1, 0}}), OnDevice(Array<int32_t>{{1, 0}}), {2, 2})->ascending(),
            false);
  EXPECT_EQ(SegmentPlan::Make(OnDevice(Array<int32_t>{{}}), OnDevice(Array<int32_t>{{}}), {2, 2})->num_unique(), 0);
}

// A table with the states of an optimizer, in host or in device memory.
class Optimized {
 public:
  Optimized(const TensorView& table, const TensorView& first, const TensorView& second, Device device)
      : table_(Copy(table, device)), first_(Copy(first, device)), second_(Copy(second, device)) {}

  MutableTensorView table() { return Mutable(table_); }
  RowUpdate Rule(int which) {
    if (which == 0) return Sgd{0.3};
    if (which == 1) return Adagrad{.learning_rate = 0.05, .accumulator = Mutable(first_)};
    return Adam{.learning_rate = 0.01, .step = 3, .m = Mutable(first_), .v = Mutable(second_)};
  }
  std::vector<Tensor> OnHost() const {
    std::vector<Tensor> all;
    for (const Tensor* tensor : {&table_, &first_, &second_}) all.push_back(Copy(tensor->view(), Device::kCpu));
    return all;
  }

 private:
  static Tensor Copy(const TensorView& from, Device device) {
    if (device == Device::kCuda) return std::move(OnDevice(from).tensor());
    return ::raggrad::testing::OnHost(from);
  }
  static MutableTensorView Mutable(Tensor& tensor) {
    return {tensor.data(), tensor.dtype(), tensor.shape(), tensor.view().device};
  }

  Tensor table_, first_, second_;
};

void ExpectSameTables(const Optimized& got, const Optimized& want) {
  const std::vector<Tensor> a = got.OnHost(), b = want.OnHost();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(SameTensor(a[i].view(), b[i].view())) << "array " << i;
}

template <class T>
using TablesOf = std::conditional_t<std::is_same_v<T, double>, TypeList<double>, TypeList<Half, BFloat16, float>>;

// SparseSegmentGradApply and ApplyRows with every table that T can update.
template <class T, class W>
void ExpectSameUpdates(const Batch& batch, int64_t width) {
  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Generator random(9);
  const Array<T> grad{random.Values<T>(batch.segments * width), Shape{batch.segments, width}};
  const Shape shape{batch.rows, width};
  const Array<W> table{random.Values<W>(batch.rows * width), shape};
  std::vector<A> squares = random.Values<A>(batch.rows * width);
  for (A& square : squares) square *= square;
  const Array<A> states{squares, shape};
  const OnDevice device_grad(grad);
  for (int rule = 0; rule < 3; ++rule) {
    const SegmentCombiner combiner = kCombiners[rule];
    SCOPED_TRACE("rule " + std::to_string(rule) + ", width " + std::to_string(width));
    const auto apply = [&](Optimized& to, const Context& ctx) {
      const bool device = to.table().device == Device::kCuda;
      return SparseSegmentGradApply(combiner, device ? device_grad.view() : grad.view(),
                                    device ? batch.device_index(DType::kInt32) : batch.index(DType::kInt32),
                                    device ? batch.device_segment(DType::kInt64) : batch.segment(DType::kInt64),
                                    to.Rule(rule), to.table(), ctx);
    };
    Optimized want(table, states, states, Device::kCpu), got(table, states, states, Device::kCuda);
    ASSERT_THAT(apply(want, {}), IsOk());
    ASSERT_THAT(apply(got, Sequential()), IsOk());
    ExpectSameTables(got, want);
    // The same bits as in two steps, and with a plan.
    Optimized fused(table, states, states, Device::kCuda), two_steps(table, states, states, Device::kCuda),
        planned(table, states, states, Device::kCuda);
    ASSERT_THAT(apply(fused, {}), IsOk());
    const auto rows = SparseSegmentGradV2(combiner, device_grad, batch.device_index(DType::kInt32),
                                          batch.device_segment(DType::kInt64), batch.dim0());
    ASSERT_THAT(ApplyRows({rows->output.view(), rows->sorted_unique_indices.view(), batch.rows}, two_steps.Rule(rule),
                          two_steps.table()),
                IsOk());
    ExpectSameTables(fused, two_steps);
    const auto plan = SegmentPlan::Make(batch.device_index(DType::kInt32), batch.device_segment(DType::kInt64),
                                        {.rows = batch.rows, .segments = batch.segments});
    ASSERT_THAT(SparseSegmentGradApply(combiner, device_grad, *plan, planned.Rule(rule), planned.table()), IsOk());
    ExpectSameTables(planned, fused);
  }
}

TYPED_TEST(SegmentGradCuda, Updates) {
  const Batch batch = Batch::OfRows({3, 700, 1, 0, 1, 40, 600, 9000, 2}, 50, 4);
  for (const int64_t width : {12, 5}) {
    const auto each = [&]<class... W>(TypeList<W...>) { (ExpectSameUpdates<TypeParam, W>(batch, width), ...); };
    each(TablesOf<TypeParam>{});
  }
}

TEST_F(GpuTest, AnUpdateThatFailsChangesNothing) {
  const Array<float> numbers{{1, 2}, Shape{2, 1}};
  Optimized got(numbers, numbers, numbers, Device::kCuda);
  const Optimized want(numbers, numbers, numbers, Device::kCpu);
  const OnDevice values(numbers), indices(Array<int32_t>{{0, 2}});
  EXPECT_THAT(ApplyRows({values, indices, 2}, got.Rule(1), got.table()),
              StatusIs(Code::kInvalidArgument, HasSubstr("Index 2 out of range [0, 2). [indices[1]]")));
  ExpectSameTables(got, want);
  std::vector<float> host_table = {1, 2};
  EXPECT_THAT(ApplyRows({values, indices, 2}, Sgd{1.0}, MutableTensorView::Of(host_table.data(), Shape{2, 1})),
              StatusIs(Code::kInvalidArgument, HasSubstr("different devices")));
}

TEST_F(GpuTest, SlicesOnTheDevice) {
  Generator random(4);
  const Array<float> values{random.HostileValues<float>(3000 * 6), Shape{3000, 6}};
  const Array<int64_t> indices{random.ZipfIds<int64_t>(3000, 50)};
  const OnDevice device_values(values), device_indices(indices);
  ExpectSame(ToDense({device_values, device_indices, 50}, Sequential()), ToDense({values, indices, 50}));
  const auto got = Coalesce({device_values, device_indices, 50}, Sequential());
  const auto want = Coalesce({values, indices, 50});
  ASSERT_THAT(got, IsOk());
  ExpectSame(got->values.view(), want->values.view());
  ExpectSame(got->indices.view(), want->indices.view());
}

// What a padded gradient holds is what one without padding holds.
void ExpectPadded(const SparseSegmentGradV2PaddedOutput& padded, const SparseSegmentGradV2Output& want, int64_t dim0) {
  const int64_t rows = want.output.shape()[0];
  const Result<int64_t> count = CheckPadded(padded);
  ASSERT_THAT(count, IsOk());
  EXPECT_EQ(*count, rows);
  const Tensor output = OnHost(padded.output.view()), numbers = OnHost(padded.sorted_unique_indices.view());
  const int64_t width = output.shape()[1];
  const TensorView first_rows = {output.view().data, output.dtype(), want.output.shape(), Device::kCpu};
  EXPECT_TRUE(SameTensor(first_rows, want.output.view()));
  for (int64_t i = rows * width; i < output.shape()[0] * width; ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(output.As<float>()[i]), 0U) << i;
  }
  for (int64_t i = 0; i < numbers.shape()[0]; ++i) {
    ASSERT_EQ(numbers.As<int32_t>()[i], i < rows ? want.sorted_unique_indices.As<int32_t>()[i] : dim0) << i;
  }
}

TEST_F(GpuTest, PaddedGradients) {
  const Batch batch = Batch::Zipf(3000, 500, 40, 3);
  const Array<float> grad = WholeGrad<float>(batch, 6, 1);
  const OnDevice device_grad(grad);
  const TensorView index = batch.device_index(DType::kInt32), segment = batch.device_segment(DType::kInt64);
  const auto want =
      SparseSegmentSumGradV2(grad, batch.index(DType::kInt32), batch.segment(DType::kInt64), batch.dim0());
  const int64_t unique = want->output.shape()[0];
  for (const int64_t max_unique : {unique, int64_t{500}, int64_t{1000}}) {
    const auto padded =
        SparseSegmentGradV2Padded(SegmentCombiner::kSum, device_grad, index, segment, batch.dim0(), max_unique);
    ASSERT_THAT(padded, IsOk());
    ExpectPadded(*padded, *want, 500);
  }
  for (const int64_t max_unique : {unique - 1, int64_t{0}}) {
    const auto padded =
        SparseSegmentGradV2Padded(SegmentCombiner::kSum, device_grad, index, segment, batch.dim0(), max_unique);
    ASSERT_THAT(padded, IsOk());
    EXPECT_THAT(CheckPadded(*padded),
                StatusIs(Code::kResourceExhausted, HasSubstr("[max_unique: expected " + std::to_string(unique))));
  }
  const int32_t few = 3;
  const auto bad =
      SparseSegmentGradV2Padded(SegmentCombiner::kMean, device_grad, index, segment, TensorView::Scalar(few), 10);
  ASSERT_THAT(bad, IsOk());
  EXPECT_EQ(
      CheckPadded(*bad).status().message(),
      SparseSegmentMeanGradV2(grad, batch.index(DType::kInt32), batch.segment(DType::kInt64), TensorView::Scalar(few))
          .status()
          .message());
  for (const auto& [rows, segments] : {std::pair{0, 2}, std::pair{3, 0}}) {
    const Batch no_sums({1, 2}, {0, 1}, rows, segments);
    const OnDevice no_grad(Array<float>{std::vector<float>(static_cast<size_t>(segments)), Shape{segments, 1}});
    const auto padded = SparseSegmentGradV2Padded(SegmentCombiner::kMean, no_grad, no_sums.device_index(DType::kInt32),
                                                  no_sums.device_segment(DType::kInt32), no_sums.dim0(), 5);
    ASSERT_THAT(padded, IsOk());
    EXPECT_EQ(CheckPadded(*padded).ok(), rows == 0);
  }
}

TEST_F(GpuTest, APaddedGradientCanBeCaptured) {
  CapturedGraph graph;
  if (!graph.ok()) GTEST_SKIP() << "no CUDA driver";
  const Batch batch = Batch::Zipf(3000, 500, 40, 3), other = Batch::Zipf(3000, 500, 40, 4);
  const Array<float> grad = WholeGrad<float>(batch, 6, 1);
  const OnDevice device_grad(grad);
  const OnDevice index(batch.index(DType::kInt32)), segment(batch.segment(DType::kInt32));
  const auto run = [&](const Context& ctx) {
    return SparseSegmentGradV2Padded(SegmentCombiner::kSum, device_grad, index, segment, batch.dim0(), 500, ctx);
  };
  ASSERT_THAT(run({}), IsOk());  // CUDA loads kernels when they first run, which cannot be captured
  const auto padded = graph.Capture(run);
  ASSERT_THAT(padded, IsOk());
  for (const Batch* ids : {&other, &batch, &other}) {
    graph.Overwrite(index, ids->index(DType::kInt32));
    graph.Overwrite(segment, ids->segment(DType::kInt32));
    graph.Replay();
    ExpectPadded(*padded,
                 *SparseSegmentSumGradV2(grad, ids->index(DType::kInt32), ids->segment(DType::kInt32), ids->dim0()),
                 500);
  }
}

}  // namespace
}  // namespace raggrad
