// The CPU's padded results and errors on a GPU, in CUDA graphs, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"
#include "raggrad/testing/always_the_same.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/captured_graph.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/padded_on_device.h"
#include "raggrad/testing/random_tensor.h"

namespace raggrad::testing {
namespace {

using ::testing::HasSubstr;
using Sparse = SparseFillEmptyRowsPaddedOutput;
using Ragged = RaggedFillEmptyRowsPaddedOutput;

constexpr float kDefault = 3;

void ExpectSameFill(const Result<Sparse>& got, const Result<Sparse>& want, const Context& ctx = {}) {
  ExpectSamePadded(got, want, ctx, &Sparse::output_indices, &Sparse::output_values, &Sparse::empty_row_indicator,
                   &Sparse::reverse_index_map);
}
void ExpectSameFill(const Result<Ragged>& got, const Result<Ragged>& want, const Context& ctx = {}) {
  ExpectSamePadded(got, want, ctx, &Ragged::output_value_rowids, &Ragged::output_values, &Ragged::empty_row_indicator,
                   &Ragged::reverse_index_map);
}

Array<int64_t> RowIds(Generator& random, int64_t n, int64_t rows, bool by_row) {
  std::vector<int64_t> ids = random.ZipfIds<int64_t>(n, rows);
  for (int64_t& row : ids) row = (row * 7919) % rows;  // spreads the frequent rows
  if (by_row) std::sort(ids.begin(), ids.end());
  return ids;
}

using TypesButStrings = JoinLists<NumberTypes, TypeList<bool>>;
class FillEmptyRowsPaddedCudaTyped : public GpuTest, public ::testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(Each, FillEmptyRowsPaddedCudaTyped, EachDType(TypesButStrings{}), NameOfDType);

TEST_P(FillEmptyRowsPaddedCudaTyped, HasTheCpusResult) {
  Generator random(1);
  const Tensor default_value = HostileTensor(random, GetParam(), Shape{});
  const OnDevice device_default(default_value.view());
  for (const auto& [n, rows] : {std::pair{0, 0}, {0, 1}, {0, 700}, {1, 1}, {257, 1}, {300, 299}, {1000, 5000}}) {
    for (const int64_t d : {1, 2, 5}) {
      SCOPED_TRACE(std::to_string(n) + " entries, " + std::to_string(rows) + " rows, d " + std::to_string(d));
      Array<int64_t> indices({}, Shape{n, d});
      for (const int64_t row : RowIds(random, n, std::max(rows, 1), n % 2 == 0).values) {
        indices.values.push_back(row);
        for (int64_t c = 1; c < d; ++c) indices.values.push_back(random.Hostile<int64_t>());
      }
      const Tensor values = HostileTensor(random, GetParam(), Shape{n});
      const Array shape = std::vector<int64_t>(static_cast<size_t>(d), rows);
      const OnDevice device_indices(indices), device_values(values.view());
      const auto full = SparseFillEmptyRows(indices, values.view(), shape, default_value.view());
      ASSERT_THAT(full, IsOk());
      const int64_t n_full = full->output_values.shape()[0];
      for (const int64_t max_full : {n_full, n_full + 1, int64_t{n + rows + 300}, n_full - 1, int64_t{0}}) {
        if (max_full < 0) continue;
        SCOPED_TRACE("room for " + std::to_string(max_full));
        ExpectSameFill(SparseFillEmptyRowsPadded(device_indices, device_values, shape, device_default, max_full),
                       SparseFillEmptyRowsPadded(indices, values.view(), shape, default_value.view(), max_full));
      }
    }
  }
}

class FillEmptyRowsPaddedCudaTest : public GpuTest {
 protected:
  static Result<Ragged> OnCpu(const TensorView& rowids, const TensorView& values, int64_t rows, int64_t max_full) {
    return RaggedFillEmptyRowsPadded(rowids, values, TensorView::Scalar(rows), TensorView::Scalar(kDefault), max_full);
  }
  static Result<Ragged> OnGpu(const TensorView& rowids, const TensorView& values, int64_t rows,
                              const TensorView& default_value, int64_t max_full, const Context& ctx = {}) {
    return RaggedFillEmptyRowsPadded(rowids, values, TensorView::Scalar(rows), default_value, max_full, ctx);
  }
};

TEST_F(FillEmptyRowsPaddedCudaTest, RaggedForm) {
  Generator random(2);
  const OnDevice default_value(TensorView::Scalar(kDefault));
  const auto expect_same = [&](const Array<int64_t>& rowids, int64_t rows) {
    const Array values = random.Values<float>(rowids.shape[0]);
    for (const int64_t max_full : {0, 4, 9, 20}) {
      SCOPED_TRACE("room for " + std::to_string(max_full));
      ExpectSameFill(OnGpu(OnDevice(rowids), OnDevice(values), rows, default_value, max_full),
                     OnCpu(rowids, values, rows, max_full));
    }
  };
  expect_same(std::vector<int64_t>{}, 0);  // [max_full], where the form without padding has [0, 1]
  expect_same(std::vector<int64_t>{}, 3);
  expect_same(std::vector<int64_t>{0, 0, 2, 5}, 7);
  expect_same(std::vector<int64_t>{5, 0, 2, 0}, 7);
  expect_same(std::vector<int64_t>{5, 0, 7, 0, -1}, 7);
  expect_same(std::vector<int64_t>{-1, 0}, 7);
}

TEST_F(FillEmptyRowsPaddedCudaTest, FirstBadRowIsReported) {
  Generator random(3);
  const Array values = random.Values<float>(3000);
  const OnDevice device_values(values), default_value(TensorView::Scalar(kDefault));
  Array rowids = RowIds(random, 3000, 100, true);
  for (const int64_t bad : {int64_t{100}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    for (const size_t position : {2999U, 700U, 0U}) {
      rowids.values[position] = bad;
      for (const int64_t max_full : {0, 3050, 4000}) {
        ExpectSameFill(OnGpu(OnDevice(rowids), device_values, 100, default_value, max_full),
                       OnCpu(rowids, values, 100, max_full));
      }
    }
  }
}

TEST_F(FillEmptyRowsPaddedCudaTest, ManyEntriesAlwaysTheSame) {
  Generator random(4);
  const int64_t n = 300'000, rows = 150'000;
  const Array values = random.Values<float>(n);
  for (const bool by_row : {true, false}) {
    const Array rowids = RowIds(random, n, rows, by_row);
    const OnDevice device_rowids(rowids), device_values(values), default_value(TensorView::Scalar(kDefault));
    const auto run = [&](const Context& ctx) {
      return OnGpu(device_rowids, device_values, rows, default_value, n + rows, ctx);
    };
    ExpectSameFill(run({}), OnCpu(rowids, values, rows, n + rows));
    ExpectAlwaysTheSame(run, [](const Ragged& result) {
      return std::vector{result.output_value_rowids.view(), result.output_values.view(),
                         result.empty_row_indicator.view(), result.reverse_index_map.view(), result.report.view()};
    });
  }
}

TEST_F(FillEmptyRowsPaddedCudaTest, NeverWaits) {
  Generator random(5);
  const Array rowids = RowIds(random, 1000, 300, false);
  const Array values = random.Values<float>(1000);
  const OnDevice device_rowids(rowids), device_values(values), default_value(TensorView::Scalar(kDefault));
  ExpectNoWait([&](const Context& ctx) { return OnGpu(device_rowids, device_values, 300, default_value, 1300, ctx); },
               OnCpu(rowids, values, 300, 1300), &Ragged::output_value_rowids, &Ragged::output_values,
               &Ragged::empty_row_indicator, &Ragged::reverse_index_map);
}

TEST_F(FillEmptyRowsPaddedCudaTest, CanBeCapturedAndReplayed) {
  constexpr int64_t kEntries = 1000, kRows = 500, kMax = 1400;
  Generator random(6);
  const Array first = RowIds(random, kEntries, kRows, false), second = RowIds(random, kEntries, kRows, true);
  Array bad = second;
  bad.values[345] = kRows;
  const Array too_many = std::vector<int64_t>(kEntries, 7);  // 499 empty rows
  const Array values = random.Values<float>(kEntries), other_values = random.Values<float>(kEntries);
  const OnDevice rowids(first), device_values(values), default_value(TensorView::Scalar(kDefault));
  const auto run = [&](const Context& ctx) { return OnGpu(rowids, device_values, kRows, default_value, kMax, ctx); };
  ASSERT_THAT(run({}), IsOk());  // the first call loads kernels, which cannot be captured
  CapturedGraph graph;
  const auto padded = graph.Capture(run);
  ASSERT_THAT(padded, IsOk());
  for (const Array<int64_t>& ids : {first, second, bad, second, too_many, first}) {
    graph.Overwrite(rowids, ids);
    graph.Replay();
    ExpectSameFill(padded, OnCpu(ids, values, kRows, kMax));
  }
  graph.Overwrite(device_values, other_values);
  graph.Replay();
  ExpectSameFill(padded, OnCpu(first, other_values, kRows, kMax));
}

TEST_F(FillEmptyRowsPaddedCudaTest, ReportsEveryAllocationFailure) {
  Generator random(7);
  const OnDevice rowids(RowIds(random, 3000, 1000, false)), values(Array(random.Values<float>(3000)));
  const OnDevice default_value(TensorView::Scalar(kDefault));
  ExpectEveryDeviceAllocationFailureIsReported(
      [&](const Context& ctx) { return OnGpu(rowids, values, 1000, default_value, 4000, ctx).status(); });
}

TEST_F(FillEmptyRowsPaddedCudaTest, RefusesStringsAndNegativeRoom) {
  const TensorView none{nullptr, DType::kString, Shape{0}, Device::Cuda()};
  const TensorView scalar{&none, DType::kString, Shape{}, Device::Cuda()};
  const OnDevice rowids(Array<int64_t>({}, Shape{0})), values(Array<float>({})), number(TensorView::Scalar(kDefault));
  EXPECT_THAT(OnGpu(rowids, none, 2, scalar, 5),
              StatusIs(Code::kUnimplemented, HasSubstr("RaggedFillEmptyRows: there are no kernels for strings")));
  EXPECT_THAT(OnGpu(rowids, values, 2, number, -1), StatusIs(Code::kInvalidArgument, HasSubstr("[max_full: expected")));
}

}  // namespace
}  // namespace raggrad::testing
