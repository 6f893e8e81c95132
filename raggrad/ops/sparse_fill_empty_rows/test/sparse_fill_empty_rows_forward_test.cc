#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "raggrad/ops/sparse_fill_empty_rows/kernels.h"
#include "raggrad/ops/sparse_fill_empty_rows/row_order.h"
#include "raggrad/ops/sparse_fill_empty_rows/test/reference.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/hostile_tensor.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::testing::Array;
using ::raggrad::testing::CountingAllocator;
using ::raggrad::testing::Difference;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::Gather;
using ::raggrad::testing::Generator;
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::HostileTensor;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace reference = sparse_fill_empty_rows::reference;

constexpr int64_t kSplit = 7 * 8192 + 100;  // steps enough for seven threads
constexpr auto kMin = std::numeric_limits<int64_t>::min();
constexpr auto kMax = std::numeric_limits<int64_t>::max();

Array<int64_t> Scalar(int64_t value) { return {{value}, Shape{}}; }

// Entries of the given rows, [n, d]; the other columns hold any numbers at all.
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

// `got` holds output_indices or output_value_rowids, and the other outputs.
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

// Every setting gives, bit for bit, what the reference gives; with one column the ragged form does so, too.
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

template <class T>
class EveryValue : public ::testing::Test {
 protected:
  // Random values for entries of these rows.
  void ExpectSame(const std::vector<int64_t>& rows_of_entries, int64_t rows, int64_t d) {
    const Tensor values = HostileTensor<T>(random_, Shape{static_cast<int64_t>(rows_of_entries.size())});
    const Tensor default_value = HostileTensor<T>(random_, Shape{});
    ExpectSameAsReference(Indices(random_, rows_of_entries, d), rows, values.view(), default_value.view());
  }

  Generator random_{1};
};
TYPED_TEST_SUITE(EveryValue, GtestTypes<sparse_fill_empty_rows::FillTypes>);

TYPED_TEST(EveryValue, MatchesTheReferenceInAnyOrder) {
  for (const int64_t rows : {1, 2, 3, 10, 100}) {
    for (const int64_t n : {0, 1, 2, 9, 47, 49, 130}) {
      SCOPED_TRACE(std::to_string(n) + " entries, " + std::to_string(rows) + " rows");
      const auto some = this->random_.template UniformIds<int64_t>(n, rows);
      for (const int64_t d : {1, 2, 3, 5}) {
        this->ExpectSame(some, rows, d);
        this->ExpectSame(Sorted(some), rows, d);
      }
    }
  }
}

TYPED_TEST(EveryValue, IsSplitOverThreads) {
  this->ExpectSame(Sorted(this->random_.template ZipfIds<int64_t>(kSplit, 50'000)), 50'000, 2);
  this->ExpectSame(this->random_.template ZipfIds<int64_t>(kSplit, 50'000), 50'000, 2);
}

TYPED_TEST(EveryValue, ReportsEveryAllocationFailure) {
  const Tensor values = HostileTensor<TypeParam>(this->random_, Shape{kSplit});
  const Tensor default_value = HostileTensor<TypeParam>(this->random_, Shape{});
  const auto any_order = this->random_.template UniformIds<int64_t>(kSplit, 1000);
  for (const Array<int64_t>& rows : {Array(any_order), Array(Sorted(any_order))}) {
    for (const int workers : {1, 7}) {
      Context ctx;
      ctx.executor = &::raggrad::testing::Pool(workers);
      ExpectEveryAllocationFailureIsReported(ctx, [&](const Context& failing) {
        return RaggedFillEmptyRows(rows, values.view(), Scalar(1010), default_value.view(), failing).status();
      });
    }
  }
}

TYPED_TEST(EveryValue, NoRows) {
  this->ExpectSame({}, 0, 1);
  this->ExpectSame({}, 0, 3);
}

TEST(FillEmptyRows, IsWhatTheExampleSays) {
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

// The walk over entries and rows is cut into pieces: rows and gaps of every length, where pieces begin and end.
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
    ctx.executor = &::raggrad::testing::Pool(7);
    EXPECT_THAT(RaggedFillEmptyRows(rows, values, Scalar(1000), TensorView::Scalar(1.0), ctx), IsOk());
    return allocator.peak_bytes();
  };
  const size_t outputs = kSplit * 3 * sizeof(int64_t) + 1000;
  EXPECT_LE(peak(Sorted(any_order)), outputs + size_t{7} * 100);
  EXPECT_LE(peak(any_order), outputs + kSplit * 16 + 4 * 8192 + size_t{7} * 200);
}

// Beyond 2^32 rows the outputs do not fit into a test: only the order of the entries is looked at.
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

// Errors.

TEST(FillEmptyRowsErrors, HostileRows) {
  const Array<float> values({1, 2, 3});
  for (const int64_t row : {int64_t{3}, int64_t{-1}, kMin, kMax}) {
    const std::string text = std::to_string(row);
    EXPECT_THAT(
        SparseFillEmptyRows(Array<int64_t>({0, 9, row, 9, -7, 9}, {3, 2}), values, Array<int64_t>({3, 3}),
                            TensorView::Scalar(1.0F)),
        StatusIs(Code::kInvalidArgument, "SparseFillEmptyRows: indices(1, 0) is invalid: " + text +
                                             " >= 3 [indices[1,0]: expected a row in [0, 3), got " + text + "]"));
    EXPECT_THAT(
        RaggedFillEmptyRows(Array<int64_t>({0, row, -7}), values, Scalar(3), TensorView::Scalar(1.0F)),
        StatusIs(Code::kInvalidArgument, "RaggedFillEmptyRows: indices(1, 0) is invalid: " + text +
                                             " >= 3 [value_rowids[1]: expected a row in [0, 3), got " + text + "]"));
  }
}

TEST(FillEmptyRowsErrors, TheFirstBadRowIsReportedWhateverTheThreads) {
  Generator random(8);
  const Array values = random.Values<float>(kSplit);
  for (int repeat = 0; repeat < 20; ++repeat) {
    Array rows = random.UniformIds<int64_t>(kSplit, 1000);
    if (repeat % 2 == 0) std::sort(rows.values.begin(), rows.values.end());
    for (const int64_t bad : random.UniformIds<int64_t>(5, kSplit)) rows.values[static_cast<size_t>(bad)] = 1000 + bad;
    const int64_t first = reference::Fill(rows.values, 1, 1000).bad_position;
    ForEachSetting([&](const Context& base) {
      CountingAllocator allocator;  // everything is given back
      Context ctx = base;
      ctx.allocator = &allocator;
      EXPECT_THAT(
          RaggedFillEmptyRows(rows, values, Scalar(1000), TensorView::Scalar(1.0F), ctx),
          StatusIs(Code::kInvalidArgument, HasSubstr("indices(" + std::to_string(first) + ", 0) is invalid: ")));
    });
  }
}

TEST(FillEmptyRowsErrors, StringsWithoutCharacters) {
  const String good{"ab", 2};
  const String bad{nullptr, 2};
  const Array<int64_t> rows({0, 1});
  EXPECT_THAT(RaggedFillEmptyRows(rows, Array<String>({good, bad}), Scalar(2), TensorView::Scalar(good)),
              StatusIs(Code::kInvalidArgument, HasSubstr("values[1]: expected 2 characters, got a null pointer]")));
  EXPECT_THAT(RaggedFillEmptyRows(rows, Array<String>({good, good}), Scalar(2), TensorView::Scalar(bad)),
              StatusIs(Code::kInvalidArgument, HasSubstr("default_value[0]: expected 2 characters")));
}

TEST(FillEmptyRowsErrors, CharactersBeyondAllMemory) {
  const String large{"", std::numeric_limits<size_t>::max() / 2};  // never read
  EXPECT_THAT(RaggedFillEmptyRows(Array<int64_t>({1, 1, 1}), Array<String>({large, large, large}), Scalar(2),
                                  TensorView::Scalar(large)),
              StatusIs(Code::kResourceExhausted, HasSubstr("OOM when allocating tensor with shape[4]")));
}

TEST(FillEmptyRowsErrors, MoreRowsThanMemory) {
  const Array<int64_t> rows({5});
  const Array<float> values({1});
  EXPECT_THAT(RaggedFillEmptyRows(rows, values, Scalar(kMax), TensorView::Scalar(1.0F)),
              StatusIs(Code::kResourceExhausted, HasSubstr("OOM when allocating tensor with shape[9223372036854775807]"
                                                           " and type bool")));
}

// The operands of one call, each of which a test can spoil.
struct SparseOperands {
  Array<int64_t> indices{{0, 0, 1, 1}, {2, 2}};
  Array<float> values{{1, 2}};
  Array<int64_t> dense_shape{{3, 3}};
  Array<float> default_value{{0}, Shape{}};

  Status Call() const { return SparseFillEmptyRows(indices, values, dense_shape, default_value).status(); }
  void Expect(const std::string& text) const { EXPECT_THAT(Call(), StatusIs(Code::kInvalidArgument, HasSubstr(text))); }
};

TEST(FillEmptyRowsErrors, SparseShapesInTensorFlowsOrder) {
  SparseOperands operands;
  EXPECT_THAT(operands.Call(), IsOk());
  // Faults are added from the last check to the first: each hides those before it.
  operands.indices.values = {5, 0, 0, 0};
  operands.Expect("indices(0, 0) is invalid: 5 >= 3 [");
  operands.dense_shape.values[0] = 0;
  operands.Expect(
      "SparseFillEmptyRows: Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = 2 [dense_shape[0]: "
      "expected at least 1 for 2 entries, got 0]");
  operands.dense_shape.values[0] = -4;
  operands.Expect("Expected shape dimensions to be non-negative, got -4 [dense_shape[0]: ");
  operands.indices = {{}, {2, 0}};
  operands.dense_shape = {{}, {0}};
  operands.Expect("Dense shape cannot be empty. [");
  operands.default_value.shape = Shape{1};
  operands.Expect("default_value must be a scalar, saw: [1] [");
  operands.dense_shape = {{1, 2, 3}};
  operands.Expect("The length of `dense_shape` (3) must match the second dimension of `indices` (0). [");
  operands.values = {{1, 2, 3}};
  operands.Expect("The length of `values` (3) must match the first dimension of `indices` (2). [");
  operands.values.shape = Shape{3, 1};
  operands.Expect("values must be a vector, saw: [3,1] [");
  operands.indices = {{1}, {1}};
  operands.Expect("indices must be a matrix, saw: [1] [");
  operands.dense_shape.shape = Shape{1, 3};
  operands.Expect("dense_shape must be a vector, saw: [1,3] [");
}

struct RaggedOperands {
  Array<int64_t> rowids{{0, 1}};
  Array<float> values{{1, 2}};
  Array<int64_t> nrows{{3}, Shape{}};
  Array<float> default_value{{0}, Shape{}};

  Status Call() const { return RaggedFillEmptyRows(rowids, values, nrows, default_value).status(); }
  void Expect(const std::string& text) const { EXPECT_THAT(Call(), StatusIs(Code::kInvalidArgument, HasSubstr(text))); }
};

TEST(FillEmptyRowsErrors, RaggedShapesInTensorFlowsOrder) {
  RaggedOperands operands;
  EXPECT_THAT(operands.Call(), IsOk());
  operands.nrows.values[0] = 0;
  operands.Expect(
      "RaggedFillEmptyRows: Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = 2 [nrows: ");
  operands.nrows.values[0] = kMin;
  operands.Expect("Expected shape dimensions to be non-negative, got -9223372036854775808 [nrows: ");
  operands.default_value.shape = Shape{1, 1};
  operands.Expect("default_value must be a scalar, saw: [1,1] [");
  operands.values = {{}};
  operands.Expect("The length of `values` (0) must match the first dimension of `value_rowids` (2). [");
  operands.values = {{1}, Shape{}};
  operands.Expect("values must be a vector, saw: [] [");
  operands.rowids.shape = Shape{2, 1};
  operands.Expect("value_rowids must be a vector, saw: [2,1] [");
  operands.nrows.shape = Shape{1};
  operands.Expect("nrows must be a scalar, saw: [1] [");
}

TEST(FillEmptyRowsErrors, TypesComeFirst) {
  const SparseOperands operands;
  TensorView views[] = {operands.indices, operands.values, operands.dense_shape, operands.default_value};
  const auto call = [&] { return SparseFillEmptyRows(views[0], views[1], views[2], views[3]).status(); };
  const std::string names[] = {"indices", "values", "dense_shape", "default_value"};
  for (size_t k = 4; k-- > 0;) {
    views[k].dtype = DType::kQInt16;
    views[k].shape = Shape{1, 1, 1};
    EXPECT_THAT(call(), StatusIs(Code::kInvalidArgument, AllOf(HasSubstr("SparseFillEmptyRows: " + names[k] + " has"),
                                                               HasSubstr("got qint16"))));
  }
  views[0].dtype = DType::kInt64;
  EXPECT_THAT(call(), StatusIs(Code::kInvalidArgument, HasSubstr("half, bfloat16, float32, float64, int8")));
}

TEST(FillEmptyRowsErrors, OperandsThatAreNoArrays) {
  const SparseOperands operands;
  const std::string names[] = {"indices", "values", "dense_shape", "default_value"};
  for (size_t k = 0; k < 4; ++k) {
    TensorView views[] = {operands.indices, operands.values, operands.dense_shape, operands.default_value};
    const auto call = [&] { return SparseFillEmptyRows(views[0], views[1], views[2], views[3]).status(); };
    views[k].data = nullptr;
    EXPECT_THAT(call(), StatusIs(Code::kInvalidArgument, HasSubstr(names[k])));
    views[k].shape = Shape{-1, 2};
    EXPECT_THAT(call(), StatusIs(Code::kInvalidArgument, HasSubstr(names[k])));
    views[k].shape = Shape(std::vector<int64_t>(Shape::kMaxRank + 1, 1));
    EXPECT_THAT(call(), StatusIs(Code::kResourceExhausted, HasSubstr(names[k])));
  }
}

TEST(FillEmptyRowsErrors, Devices) {
  const SparseOperands operands;
  TensorView views[] = {operands.indices, operands.values, operands.dense_shape, operands.default_value};
  const auto call = [&] { return SparseFillEmptyRows(views[0], views[1], views[2], views[3]).status(); };
  views[0].device = Device::kCuda;
  EXPECT_THAT(call(), StatusIs(Code::kInvalidArgument, HasSubstr("values")));
  views[1].device = views[3].device = Device::kCuda;
  EXPECT_THAT(call(), StatusIs(Code::kUnimplemented, HasSubstr("SparseFillEmptyRows")));
  views[2].device = Device::kCuda;
  EXPECT_THAT(call(), StatusIs(Code::kInvalidArgument, HasSubstr("dense_shape")));
}

}  // namespace
}  // namespace raggrad
