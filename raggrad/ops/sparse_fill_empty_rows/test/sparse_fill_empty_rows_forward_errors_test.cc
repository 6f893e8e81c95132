// The forwards' errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"
#include "raggrad/ops/sparse_fill_empty_rows/test/reference.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::testing::Array;
using ::raggrad::testing::CountingAllocator;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::Generator;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace reference = sparse_fill_empty_rows::reference;

constexpr int64_t kSplit = 7 * 8192 + 100;  // steps enough for seven threads
constexpr auto kMin = std::numeric_limits<int64_t>::min();
constexpr auto kMax = std::numeric_limits<int64_t>::max();

Array<int64_t> Scalar(int64_t value) { return {{value}, Shape{}}; }

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

TEST(FillEmptyRowsErrors, TheFirstBadRowIsReportedWithAnyThreads) {
  Generator random(8);
  const Array values = random.Values<float>(kSplit);
  for (int repeat = 0; repeat < 20; ++repeat) {
    Array rows = random.UniformIds<int64_t>(kSplit, 1000);
    if (repeat % 2 == 0) std::sort(rows.values.begin(), rows.values.end());
    for (const int64_t bad : random.UniformIds<int64_t>(5, kSplit)) rows.values[static_cast<size_t>(bad)] = 1000 + bad;
    const int64_t first = reference::Fill(rows.values, 1, 1000).bad_position;
    ForEachSetting([&](const Context& base) {
      CountingAllocator allocator;  // checks that everything is freed
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

TEST(FillEmptyRowsErrors, MoreCharactersThanMemoryHolds) {
  const String large{"", std::numeric_limits<size_t>::max() / 2};  // never read
  EXPECT_THAT(RaggedFillEmptyRows(Array<int64_t>({1, 1, 1}), Array<String>({large, large, large}), Scalar(2),
                                  TensorView::Scalar(large)),
              StatusIs(Code::kResourceExhausted, HasSubstr("OOM when allocating tensor with shape[4]")));
}

TEST(FillEmptyRowsErrors, MoreRowsThanMemoryHolds) {
  const Array<int64_t> rows({5});
  const Array<float> values({1});
  EXPECT_THAT(RaggedFillEmptyRows(rows, values, Scalar(kMax), TensorView::Scalar(1.0F)),
              StatusIs(Code::kResourceExhausted, HasSubstr("OOM when allocating tensor with shape[9223372036854775807]"
                                                           " and type bool")));
}

// The operands of one call. Tests spoil one after the other.
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
  // Faults are added from the last check to the first: each new one hides those added before.
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
  views[0].device = Device::Cuda();
  EXPECT_THAT(call(), StatusIs(Code::kInvalidArgument, HasSubstr("values")));
  views[1].device = views[3].device = Device::Cuda();
  EXPECT_THAT(call(), StatusIs(Code::kUnimplemented, HasSubstr("SparseFillEmptyRows")));
  views[2].device = Device::Cuda();
  EXPECT_THAT(call(), StatusIs(Code::kInvalidArgument, HasSubstr("dense_shape")));
}

}  // namespace
}  // namespace raggrad
