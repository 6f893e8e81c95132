// Fused updates and slices on a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "raggrad/ops/sparse_segment/indexed_slices.h"
#include "raggrad/ops/sparse_segment/segment_plan.h"
#include "raggrad/ops/sparse_segment/test/rate_in_memory.h"
#include "raggrad/ops/sparse_segment/test/test_batch.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::sparse_segment {
namespace {

using ::raggrad::testing::ExpectSame;
using ::raggrad::testing::GpuTest;
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::OnHost;
using ::raggrad::testing::StatusIs;
using ::testing::HasSubstr;

// A table with the states of an optimizer, in host or device memory.
class Optimized {
 public:
  Optimized(const TensorView& table, const TensorView& first, const TensorView& second, Device device)
      : table_(Copy(table, device)), first_(Copy(first, device)), second_(Copy(second, device)) {}

  MutableTensorView table() { return Mutable(table_); }
  RowUpdate Rule(int which) {
    if (which == 0) return Sgd{0.3};
    if (which == 1) return Adagrad{.learning_rate = 0.05, .accumulator = Mutable(first_)};
    if (which == 2) {
      MutableTensorView sums = Mutable(first_);
      sums.shape = Shape{sums.shape[0]};
      return RowwiseAdagrad{.learning_rate = 0.05, .accumulator = sums};
    }
    return Adam{.learning_rate = 0.01, .step = 3, .m = Mutable(first_), .v = Mutable(second_)};
  }
  std::vector<Tensor> OnHost() const {
    std::vector<Tensor> all;
    for (const Tensor* tensor : {&table_, &first_, &second_}) all.push_back(Copy(tensor->view(), Device::Cpu()));
    return all;
  }

 private:
  static Tensor Copy(const TensorView& from, Device device) {
    if (device.is_cuda()) return std::move(OnDevice(from).tensor());
    return ::raggrad::testing::OnHost(from);
  }
  static MutableTensorView Mutable(Tensor& tensor) {
    return {tensor.data(), tensor.dtype(), tensor.shape(), tensor.view().device};
  }

  Tensor table_, first_, second_;
};

void ExpectSameTables(const Optimized& got, const Optimized& want) {
  const std::vector<Tensor> a = got.OnHost(), b = want.OnHost();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(HoldsBits(a[i].view(), b[i].view())) << "array " << i;
}

template <class T>
using TablesOf = std::conditional_t<std::is_same_v<T, double>, TypeList<double>, TypeList<Half, BFloat16, float>>;

// SparseSegmentGradApply and ApplyRows with every table that T can update.
template <class T, class W>
void ExpectSameUpdates(const Batch& batch, int64_t width) {
  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Generator random(9);
  const Array<T> grad{random.Values<T>(batch.num_segments * width), Shape{batch.num_segments, width}};
  const Shape shape{batch.table_rows, width};
  const Array<W> table{random.Values<W>(batch.table_rows * width), shape};
  std::vector<A> squares = random.Values<A>(batch.table_rows * width);
  for (A& square : squares) square *= square;
  const Array<A> states{squares, shape};
  const OnDevice device_grad(grad);
  for (int rule = 0; rule < 4; ++rule) {
    const SegmentCombiner combiner = kCombiners[rule % 3];
    SCOPED_TRACE("rule " + std::to_string(rule) + ", width " + std::to_string(width));
    const auto apply = [&](Optimized& to, const Context& ctx) {
      const bool device = to.table().device.is_cuda();
      return SparseSegmentGradApply(combiner, device ? device_grad.view() : grad.view(),
                                    device ? batch.device_index(DType::kInt32) : batch.index(DType::kInt32),
                                    device ? batch.device_segment(DType::kInt64) : batch.segment(DType::kInt64),
                                    to.Rule(rule), to.table(), ctx);
    };
    Optimized want(table, states, states, Device::Cpu()), got(table, states, states, Device::Cuda());
    ASSERT_THAT(apply(want, {}), IsOk());
    ASSERT_THAT(apply(got, Sequential()), IsOk());
    ExpectSameTables(got, want);
    // The same bits as in two steps, and with a plan.
    Optimized fused(table, states, states, Device::Cuda()), two_steps(table, states, states, Device::Cuda()),
        planned(table, states, states, Device::Cuda());
    ASSERT_THAT(apply(fused, {}), IsOk());
    const auto rows = SparseSegmentGradV2(combiner, device_grad, batch.device_index(DType::kInt32),
                                          batch.device_segment(DType::kInt64), batch.dim0());
    ASSERT_THAT(ApplyRows({rows->output.view(), rows->sorted_unique_indices.view(), batch.table_rows},
                          two_steps.Rule(rule), two_steps.table()),
                IsOk());
    ExpectSameTables(fused, two_steps);
    const auto plan = SegmentPlan::Make(batch.device_index(DType::kInt32), batch.device_segment(DType::kInt64),
                                        {.table_rows = batch.table_rows, .num_segments = batch.num_segments});
    ASSERT_THAT(SparseSegmentGradApply(combiner, device_grad, *plan, planned.Rule(rule), planned.table()), IsOk());
    ExpectSameTables(planned, fused);
    // The same bits with a rate in device memory, with a plan and for rows that are coalesced.
    Optimized rated(table, states, states, Device::Cuda()), rated_rows(table, states, states, Device::Cuda());
    const OnDevice rate(Array<double>{{RateNumber(rated.Rule(rule))}});
    ASSERT_THAT(SparseSegmentGradApply(combiner, device_grad, *plan, WithRate(rated.Rule(rule), rate), rated.table()),
                IsOk());
    ExpectSameTables(rated, fused);
    ASSERT_THAT(ApplyRows({rows->output.view(), rows->sorted_unique_indices.view(), batch.table_rows, true},
                          WithRate(rated_rows.Rule(rule), rate), rated_rows.table()),
                IsOk());
    ExpectSameTables(rated_rows, two_steps);
  }
}

template <class T>
class SegmentUpdateCuda : public GpuTest {};
TYPED_TEST_SUITE(SegmentUpdateCuda, GtestTypes<FloatTypes>);

TYPED_TEST(SegmentUpdateCuda, HasTheCpusBits) {
  const Batch batch = Batch::OfRows({3, 700, 1, 0, 1, 40, 600, 9000, 2}, 50, 4);
  for (const int64_t width : {24, 12, 5}) {  // lanes have 8, 4 columns and 1 of 16-bit types
    const auto each = [&]<class... W>(TypeList<W...>) { (ExpectSameUpdates<TypeParam, W>(batch, width), ...); };
    each(TablesOf<TypeParam>{});
  }
}

TEST_F(GpuTest, AnUpdateThatFailsChangesNothing) {
  const Array<float> start{{1, 2}, Shape{2, 1}};
  Optimized got(start, start, start, Device::Cuda());
  const Optimized want(start, start, start, Device::Cpu());
  const OnDevice values(start), indices(Array<int32_t>{{0, 2}});
  EXPECT_THAT(ApplyRows({values, indices, 2}, got.Rule(1), got.table()),
              StatusIs(Code::kInvalidArgument, HasSubstr("Index 2 out of range [0, 2). [indices[1]]")));
  ExpectSameTables(got, want);
  const Array<double> host_rate{{1.0}};
  EXPECT_THAT(ApplyRows({values, OnDevice(Array<int32_t>{{0, 1}}), 2}, WithRate(got.Rule(1), host_rate), got.table()),
              StatusIs(Code::kInvalidArgument, HasSubstr("different devices [rate: expected that of grad")));
  std::vector<float> host_table = {1, 2};
  EXPECT_THAT(ApplyRows({values, indices, 2}, Sgd{1.0}, MutableTensorView::Of(host_table.data(), Shape{2, 1})),
              StatusIs(Code::kInvalidArgument, HasSubstr("different devices")));
}

// Slices that are known to be coalesced have the update of others; indices out of range are skipped.
TEST_F(GpuTest, CoalescedSlices) {
  for (const int64_t width : {1, 6, 64, 300}) {
    const Array<float> values{Generator(3).Values<float>(4 * width), Shape{4, width}};
    const Array<float> table{Generator(4).Values<float>(9 * width), Shape{9, width}};
    const Array<float> ones{std::vector<float>(table.values.size(), 1.0F), table.shape};
    const OnDevice device_values(values), indices(Array<int64_t>{{0, 3, 4, 8}});
    const auto updated = [&](const TensorView& rows, bool coalesced) {
      OnDevice copy(table), m(ones);
      Tensor& weights = copy.tensor();
      const MutableTensorView target{weights.data(), DType::kFloat32, table.shape, Device::Cuda()};
      const MutableTensorView state{m.tensor().data(), DType::kFloat32, table.shape, Device::Cuda()};
      EXPECT_THAT(ApplyRows({device_values, rows, 9, coalesced}, Adagrad{0.1, 1e-8, state}, target), IsOk());
      return OnHost(copy.view());
    };
    const Tensor want = updated(indices, false), got = updated(indices, true);
    ExpectSame(OnDevice(got.view()), want.view());
    const Tensor some = updated(OnDevice(Array<int64_t>{{0, 3, 9, int64_t{1} << 40}}), true);
    const auto* const rows = some.As<float>();
    EXPECT_TRUE(std::equal(rows, rows + 4 * width, want.As<float>()));
    EXPECT_TRUE(std::equal(rows + 4 * width, rows + 9 * width, table.values.begin() + 4 * width));
  }
}

// Rows that ascend are not sorted. Tables of 2^10 and 2^21 rows take an odd number of passes.
TEST_F(GpuTest, SlicesWhoseRowsAscend) {
  constexpr int64_t kSlices = 30'000;
  for (const int64_t table_rows : {int64_t{1000}, int64_t{60'000}, int64_t{3'000'000}}) {
    Generator random(static_cast<uint64_t>(table_rows));
    std::vector<int64_t> rows = random.UniformIds<int64_t>(kSlices, table_rows);
    std::ranges::sort(rows);
    const Array<float> values{random.HostileValues<float>(kSlices * 4), Shape{kSlices, 4}};
    const OnDevice device_values(values);
    const auto expect_cpus_rows = [&] {
      const Array<int64_t> indices{rows};
      const auto want = Coalesce({values, indices, table_rows});
      const OnDevice device_indices(indices);
      const auto got = Coalesce({device_values, device_indices, table_rows}, Sequential());
      ASSERT_THAT(got, IsOk());
      ExpectSame(got->values.view(), want->values.view());
      ExpectSame(got->indices.view(), want->indices.view());
    };
    expect_cpus_rows();
    std::swap(rows[0], rows[kSlices - 1]);
    expect_cpus_rows();
    std::ranges::sort(rows);
    rows[kSlices / 2] = table_rows;
    EXPECT_THAT(Coalesce({device_values, OnDevice(Array<int64_t>{rows}), table_rows}),
                StatusIs(Code::kInvalidArgument, HasSubstr("[indices[15000]]")));
  }
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

}  // namespace
}  // namespace raggrad::sparse_segment
