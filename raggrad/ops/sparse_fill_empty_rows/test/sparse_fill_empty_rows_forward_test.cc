// The forwards' results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "raggrad/ops/sparse_fill_empty_rows/forward/row_order.h"
#include "raggrad/ops/sparse_fill_empty_rows/kernels.h"
#include "raggrad/ops/sparse_fill_empty_rows/test/reference.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/random_tensor.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::testing::Array;
using ::raggrad::testing::CountingAllocator;
using ::raggrad::testing::Difference;
using ::raggrad::testing::EachDType;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::Gather;
using ::raggrad::testing::Generator;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::HostileTensor;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::NameOfDType;
namespace reference = sparse_fill_empty_rows::reference;

constexpr int64_t kSplit = 7 * 8192 + 100;  // steps enough for seven threads
constexpr auto kMax = std::numeric_limits<int64_t>::max();

Array<int64_t> Scalar(int64_t value) { return {{value}, Shape{}}; }

// Entries of the given rows, [n, d]; the other columns hold hostile values.
Array<int64_t> Indices(Generator& random, const std::vector<int64_t>& rows, int64_t d) {
  Array<int64_t> indices({}, {static_cast<int64_t>(rows.size()), d});
  for (const int64_t row : rows) {
    indices.values.push_back(row);
    for (int64_t c = 1; c < d; ++c) indices.values.push_back(random.Hostile<int64_t>());
  }
  return indices;
}

Array<int64_t> DenseShape(int64_t rows, int64_t d) {
  std::vector<int64_t> dims(static_cast<size_t>(d), -7);  // only the first one counts
  dims[0] = rows;
  return dims;
}

// Compares output_indices or output_value_rowids, and the other outputs in `got`.
void ExpectOutputs(const TensorView& got_indices, const auto& got, const reference::FillResult& want,
                   const Shape& shape, const TensorView& values, const TensorView& default_value) {
  EXPECT_TRUE(HoldsBits(got_indices, Array<int64_t>(want.output_indices, shape)));
  EXPECT_EQ(Difference(got.output_values.view(), Gather(values, want.sources, default_value).view()), "");
  TensorView indicator = got.empty_row_indicator.view();
  ASSERT_EQ(indicator.dtype, DType::kBool);
  indicator.dtype = DType::kUInt8;
  EXPECT_TRUE(HoldsBits(indicator, Array(want.empty_row_indicator)));
  EXPECT_TRUE(HoldsBits(got.reverse_index_map.view(), Array(want.reverse_index_map)));
}

// Expects the reference's bits under every setting; with one column also from the ragged form.
void ExpectSameAsReference(const Array<int64_t>& indices, int64_t rows, const TensorView& values,
                           const TensorView& default_value) {
  const int64_t n = indices.shape[0];
  const int64_t d = indices.shape[1];
  const auto want = reference::Fill(indices.values, static_cast<size_t>(d), rows);
  ASSERT_EQ(want.bad_position, -1);
  const int64_t n_full = static_cast<int64_t>(want.sources.size());
  ForEachSetting([&](const Context& ctx) {
    const auto got = SparseFillEmptyRows(indices, values, DenseShape(rows, d), default_value, ctx);
    ASSERT_THAT(got, IsOk());
    ExpectOutputs(got->output_indices.view(), *got, want, Shape{n_full, d}, values, default_value);
    if (d != 1) return;
    const Array<int64_t> rowids(indices.values, {n});
    const auto ragged = RaggedFillEmptyRows(rowids, values, Scalar(rows), default_value, ctx);
    ASSERT_THAT(ragged, IsOk());
    const Shape shape = rows == 0 ? Shape{0, 1} : Shape{n_full};
    ExpectOutputs(ragged->output_value_rowids.view(), *ragged, want, shape, values, default_value);
  });
}

void ExpectSameAsReference(Generator& random, const std::vector<int64_t>& rows_of_entries, int64_t rows,
                           int64_t d = 1) {
  const auto values = random.Values<float>(static_cast<int64_t>(rows_of_entries.size()));
  ExpectSameAsReference(Indices(random, rows_of_entries, d), rows, Array(values),
                        TensorView::Scalar(random.Value<float>()));
}

std::vector<int64_t> Sorted(std::vector<int64_t> rows) {
  std::sort(rows.begin(), rows.end());
  return rows;
}

class EveryValue : public ::testing::TestWithParam<DType> {
 protected:
  // Random values for entries of these rows.
  void ExpectSame(const std::vector<int64_t>& rows_of_entries, int64_t rows, int64_t d) {
    const Tensor values = HostileTensor(random_, GetParam(), Shape{static_cast<int64_t>(rows_of_entries.size())});
    const Tensor default_value = HostileTensor(random_, GetParam(), Shape{});
    ExpectSameAsReference(Indices(random_, rows_of_entries, d), rows, values.view(), default_value.view());
  }

  Generator random_{1};
};
INSTANTIATE_TEST_SUITE_P(Each, EveryValue, EachDType(sparse_fill_empty_rows::FillTypes{}), NameOfDType);

TEST_P(EveryValue, MatchesTheReferenceInAnyOrder) {
  for (const int64_t rows : {1, 2, 3, 10, 100}) {
    for (const int64_t n : {0, 1, 2, 9, 47, 49, 130}) {
      SCOPED_TRACE(std::to_string(n) + " entries, " + std::to_string(rows) + " rows");
      const auto some = random_.UniformIds<int64_t>(n, rows);
      for (const int64_t d : {1, 2, 3, 5}) {
        ExpectSame(some, rows, d);
        ExpectSame(Sorted(some), rows, d);
      }
    }
  }
}

TEST_P(EveryValue, IsSplitOverThreads) {
  ExpectSame(Sorted(random_.ZipfIds<int64_t>(kSplit, 50'000)), 50'000, 2);
  ExpectSame(random_.ZipfIds<int64_t>(kSplit, 50'000), 50'000, 2);
}

TEST_P(EveryValue, ReportsEveryAllocationFailure) {
  const Tensor values = HostileTensor(random_, GetParam(), Shape{kSplit});
  const Tensor default_value = HostileTensor(random_, GetParam(), Shape{});
  const auto any_order = random_.UniformIds<int64_t>(kSplit, 1000);
  for (const Array<int64_t>& rows : {Array(any_order), Array(Sorted(any_order))}) {
    for (const int workers : {1, 7}) {
      Context ctx;
      ctx.executor = &::raggrad::testing::SharedExecutor(workers);
      ExpectEveryAllocationFailureIsReported(ctx, [&](const Context& failing) {
        return RaggedFillEmptyRows(rows, values.view(), Scalar(1010), default_value.view(), failing).status();
      });
    }
  }
}

TEST_P(EveryValue, NoRows) {
  ExpectSame({}, 0, 1);
  ExpectSame({}, 0, 3);
}

TEST(FillEmptyRows, FillsASmallExample) {
  const Array<int64_t> indices({2, 7, 0, 5, 2, 3}, {3, 2});
  const Array<float> values({1, 2, 3});
  const auto got = SparseFillEmptyRows(indices, values, Array<int64_t>({4, 9}), TensorView::Scalar(9.0F));
  ASSERT_THAT(got, IsOk());
  EXPECT_TRUE(HoldsBits(got->output_indices.view(), Array<int64_t>({0, 5, 1, 0, 2, 7, 2, 3, 3, 0}, {5, 2})));
  EXPECT_TRUE(HoldsBits(got->output_values.view(), Array<float>({2, 9, 1, 3, 9})));
  EXPECT_TRUE(HoldsBits(got->reverse_index_map.view(), Array<int64_t>({2, 0, 3})));
  const bool* const empty = got->empty_row_indicator.As<bool>();
  EXPECT_THAT(std::vector<bool>(empty, empty + 4), ::testing::ElementsAre(false, true, false, true));
}

// The walk over entries and rows is cut into pieces. Pieces begin and end in rows and gaps of every length.
TEST(FillEmptyRowsInPieces, RowsAndGapsOfEveryLength) {
  Generator random(2);
  for (const int64_t longest : {2, 10, 1000, 10'000, 100'000}) {
    SCOPED_TRACE(longest);
    for (const bool sorted : {true, false}) {
      std::vector<int64_t> rows_of_entries;
      int64_t rows = random.Below(longest);
      while (rows + static_cast<int64_t>(rows_of_entries.size()) < kSplit) {
        rows_of_entries.insert(rows_of_entries.end(), static_cast<size_t>(1 + random.Below(longest)), rows);
        rows += 1 + random.Below(longest);
      }
      if (!sorted) std::swap(rows_of_entries.front(), rows_of_entries.back());
      ExpectSameAsReference(random, rows_of_entries, rows);
    }
  }
}

TEST(FillEmptyRowsInPieces, OneRowHasEverything) {
  Generator random(3);
  for (const int64_t rows : {int64_t{1}, int64_t{2}, kSplit}) {
    for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
      ExpectSameAsReference(random, std::vector<int64_t>(kSplit, row), rows);
    }
  }
}

TEST(FillEmptyRowsInPieces, NoEntryAndNoEmptyRow) {
  Generator random(4);
  ExpectSameAsReference(random, {}, kSplit);
  std::vector<int64_t> each_once(kSplit);
  std::iota(each_once.begin(), each_once.end(), 0);
  ExpectSameAsReference(random, each_once, kSplit, 2);
  std::reverse(each_once.begin(), each_once.end());
  ExpectSameAsReference(random, each_once, kSplit, 2);
}

TEST(FillEmptyRowsInPieces, SortedButForOneEntry) {
  Generator random(5);
  for (int repeat = 0; repeat < 10; ++repeat) {
    auto rows = Sorted(random.UniformIds<int64_t>(kSplit, 20'000));
    std::swap(rows[static_cast<size_t>(random.Below(kSplit))], rows[static_cast<size_t>(random.Below(kSplit))]);
    ExpectSameAsReference(random, rows, 20'000);
  }
}

TEST(FillEmptyRowsInPieces, ExtraMemory) {
  Generator random(6);
  const auto any_order = random.UniformIds<int64_t>(kSplit, 1000);
  const Array values = random.Values<double>(kSplit);
  const auto peak = [&](const Array<int64_t>& rows) {
    CountingAllocator allocator;
    Context ctx;
    ctx.allocator = &allocator;
    ctx.executor = &::raggrad::testing::SharedExecutor(7);
    EXPECT_THAT(RaggedFillEmptyRows(rows, values, Scalar(1000), TensorView::Scalar(1.0), ctx), IsOk());
    return allocator.peak_bytes();
  };
  const size_t outputs = kSplit * 3 * sizeof(int64_t) + 1000;
  EXPECT_LE(peak(Sorted(any_order)), outputs + size_t{7} * 100);
  EXPECT_LE(peak(any_order), outputs + kSplit * 16 + 4 * 8192 + size_t{7} * 200);
}

// The outputs of more than 2^32 rows do not fit into a test, so it checks only the order of the entries.
TEST(FillEmptyRowsInPieces, OrderOfRowsBeyond32Bits) {
  Generator random(7);
  for (const int64_t n : {2, 40, 5000}) {
    for (const int64_t rows : {int64_t{1000}, int64_t{1} << 32, int64_t{1} << 40, kMax}) {
      std::vector<int64_t> row_of = random.UniformIds<int64_t>(n, rows);
      for (size_t i = 0; i < row_of.size(); i += 3) row_of[i] = row_of[i / 2];
      const Array values = random.Values<int8_t>(n);
      const sparse_fill_empty_rows::ForwardProblem problem{"op", true, row_of.data(), values, nullptr, 1, rows};
      const auto order = sparse_fill_empty_rows::on_cpu::SortedOrder<uint64_t>::Make(problem, {});
      ASSERT_THAT(order, IsOk());
      std::vector<int64_t> want(row_of.size());
      std::iota(want.begin(), want.end(), 0);
      std::stable_sort(want.begin(), want.end(), [&](int64_t a, int64_t b) {
        return row_of[static_cast<size_t>(a)] < row_of[static_cast<size_t>(b)];
      });
      for (int64_t k = 0; k < n; ++k) {
        ASSERT_EQ(order->Entry(k), want[static_cast<size_t>(k)]);
        ASSERT_EQ(order->Row(k), row_of[static_cast<size_t>(order->Entry(k))]);
      }
    }
  }
}

}  // namespace
}  // namespace raggrad
