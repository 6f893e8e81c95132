#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <limits>
#include <string>

#include "raggrad/ops/sparse_slice/kernels.h"
#include "raggrad/ops/sparse_slice/sparse_slice.h"
#include "raggrad/ops/sparse_slice/test/reference.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ::raggrad::testing::Array;
using ::raggrad::testing::CountingAllocator;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::ForEachSetting;
using ::raggrad::testing::Generator;
using ::raggrad::testing::GtestTypes;
using ::raggrad::testing::HoldsBits;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace reference = sparse_slice::reference;

constexpr int64_t kSplit = 7 * 8192 + 100;           // rows enough for seven threads
constexpr int64_t kCopySplit = 3 * 16 * 8192 + 100;  // the same for copies without comparison
constexpr auto kMin = std::numeric_limits<int64_t>::min();
constexpr auto kMax = std::numeric_limits<int64_t>::max();

using Row = std::vector<int64_t>;

// The index operands of a call.
struct Indices {
  std::vector<Row> input;
  Row start;
  std::vector<Row> output;

  int64_t n() const { return static_cast<int64_t>(input.size()); }
  int64_t m() const { return static_cast<int64_t>(output.size()); }
  Array<int64_t> Matrix(const std::vector<Row>& rows) const {
    Array<int64_t> matrix({}, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(start.size())});
    for (const Row& row : rows) matrix.values.insert(matrix.values.end(), row.begin(), row.end());
    return matrix;
  }
};

int64_t WrappingAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t WrappingSubtract(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

Row Moved(Row row, const Row& start) {
  for (size_t c = 0; c < row.size(); ++c) row[c] = WrappingSubtract(row[c], start[c]);
  return row;
}

// The forward operator, written plainly: the rows that keep(row) names, moved by -start.
template <class F>
Indices Slice(std::vector<Row> input, Row start, const F& keep) {
  Indices indices{std::move(input), std::move(start), {}};
  for (const Row& row : indices.input) {
    if (keep(row)) indices.output.push_back(Moved(row, indices.start));
  }
  return indices;
}

std::vector<Row> RandomRows(Generator& random, int64_t count, int64_t dims, int64_t limit) {
  std::vector<Row> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(random.UniformIds<int64_t>(dims, limit));
  return rows;
}

std::vector<Row> SortedRows(Generator& random, int64_t count, int64_t dims, int64_t limit) {
  std::vector<Row> rows = RandomRows(random, count, dims, limit);
  std::sort(rows.begin(), rows.end());
  return rows;
}

// [start, start + size) in every column.
auto InBox(const Row& start, int64_t size) {
  return [start, size](const Row& row) {
    for (size_t c = 0; c < row.size(); ++c) {
      if (row[c] < start[c] || row[c] >= start[c] + size) return false;
    }
    return true;
  };
}

// Every setting gives, bit for bit, what the reference gives, its failure included. Says whether it was a success.
template <class T>
bool ExpectSameAsReference(const Array<T>& grad, const Array<int64_t>& input, const Array<int64_t>& start,
                           const Array<int64_t>& output) {
  const int64_t n = input.shape[0];
  const int64_t m = output.shape[0];
  const auto want = reference::Grad<T>(grad.values, input.values, start.values, output.values, n);
  const std::string failure =
      "SparseSliceGrad: Elements of backprop_val_grad aren't all propagated. Num elements:" + std::to_string(m) +
      ", used: " + std::to_string(want.used) + " ";
  ForEachSetting([&](const Context& base) {
    CountingAllocator allocator;
    Context ctx = base;
    ctx.allocator = &allocator;
    const auto got = SparseSliceGrad(grad, input, start, output, ctx);
    if (want.used < m) {
      EXPECT_THAT(got, StatusIs(Code::kInternal, HasSubstr(failure)));
      EXPECT_EQ(allocator.live_bytes(), 0U);
    } else {
      ASSERT_THAT(got, IsOk());
      EXPECT_TRUE(HoldsBits(got->view(), Array(want.val_grad)));
    }
  });
  return want.used == m;
}

template <class T>
bool ExpectSameAsReference(const Indices& indices, const std::vector<T>& grad) {
  return ExpectSameAsReference<T>(grad, indices.Matrix(indices.input), indices.start, indices.Matrix(indices.output));
}
bool ExpectSameAsReference(const Indices& indices, uint64_t seed = 1) {
  return ExpectSameAsReference(indices, Generator(seed).Values<float>(indices.m()));
}

template <class T>
class EveryValue : public ::testing::Test {};
TYPED_TEST_SUITE(EveryValue, GtestTypes<sparse_slice::ValueTypes>);

TYPED_TEST(EveryValue, RandomLexicographicSlices) {
  Generator random(1);
  for (int repeat = 0; repeat < 60; ++repeat) {
    const int64_t dims = random.Below(7);
    const Row start = random.UniformIds<int64_t>(dims, 4);
    const Indices indices = Slice(SortedRows(random, random.Below(40), dims, 6), start, InBox(start, 3));
    EXPECT_TRUE(ExpectSameAsReference(indices, random.HostileValues<TypeParam>(indices.m())));
  }
}

TYPED_TEST(EveryValue, IsSplitOverThreads) {
  Generator random(2);
  const Row start = {10, 20};
  const Indices indices = Slice(SortedRows(random, kSplit, 2, 300), start, InBox(start, 200));
  EXPECT_TRUE(ExpectSameAsReference(indices, random.HostileValues<TypeParam>(indices.m())));
}

TYPED_TEST(EveryValue, CopiesAllBitsOfNaNs) {
  Generator random(3);
  const Indices indices = Slice(SortedRows(random, 1001, 1, kMax), {7}, [](const Row&) { return true; });
  const auto grad = random.HostileValues<TypeParam>(1001);
  const auto got =
      SparseSliceGrad(Array(grad), indices.Matrix(indices.input), Array(indices.start), indices.Matrix(indices.output));
  ASSERT_THAT(got, IsOk());
  EXPECT_EQ(std::memcmp(got->template As<TypeParam>(), grad.data(), grad.size() * sizeof(TypeParam)), 0);
}

TYPED_TEST(EveryValue, NoColumnsNoGradientsNoRows) {
  Generator random(4);
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{9}, kCopySplit}) {
    for (const int64_t m : {int64_t{0}, n / 3, n}) {
      SCOPED_TRACE(std::to_string(m) + " of " + std::to_string(n));
      EXPECT_TRUE(ExpectSameAsReference<TypeParam>(random.Values<TypeParam>(m), {{}, {n, 0}}, {{}}, {{}, {m, 0}}));
    }
    const Array<int64_t> input(random.UniformIds<int64_t>(2 * n, 5), {n, 2});
    EXPECT_TRUE(ExpectSameAsReference<TypeParam>({{}}, input, {{1, 2}}, {{}, {0, 2}}));
  }
}

TYPED_TEST(EveryValue, ReportsEveryAllocationFailure) {
  Generator random(5);
  const Row start = {10};
  const Indices indices = Slice(SortedRows(random, kSplit, 1, 300), start, InBox(start, 200));
  const Array grad = random.Values<TypeParam>(indices.m());
  const Array input = indices.Matrix(indices.input);
  const Array output = indices.Matrix(indices.output);
  for (const int workers : {1, 7}) {
    Context ctx;
    ctx.executor = &::raggrad::testing::Pool(workers);
    ExpectEveryAllocationFailureIsReported(ctx, [&](const Context& failing) {
      return SparseSliceGrad(grad, input, Array(start), output, failing).status();
    });
  }
}

// Few different rows, in any order: repeats, near misses, gradients that find no entry.
TEST(SparseSliceGrad, TheRuleHoldsForAnyOrder) {
  Generator random(6);
  int successes = 0;
  for (int repeat = 0; repeat < 4000; ++repeat) {
    const int64_t dims = 1 + random.Below(6);
    Indices indices{RandomRows(random, random.Below(12), dims, 2), random.UniformIds<int64_t>(dims, 2), {}};
    for (const Row& row : indices.input) {
      if (random.Below(3) == 0) indices.output.push_back(Moved(row, indices.start));
    }
    if (!indices.output.empty() && random.Below(2) == 0) {
      std::swap(indices.output.front(), indices.output[static_cast<size_t>(random.Below(indices.m()))]);
    }
    successes += ExpectSameAsReference(indices, static_cast<uint64_t>(repeat)) ? 1 : 0;
  }
  EXPECT_GT(successes, 400);
  EXPECT_LT(successes, 3600);
}

// From here on the inputs are large enough to be walked in several chunks; most make the guessed cursors wrong.
TEST(SparseSliceGradInChunks, EveryNumberOfColumns) {
  Generator random(7);
  for (int64_t dims = 1; dims <= 6; ++dims) {
    SCOPED_TRACE(dims);
    const Row start(static_cast<size_t>(dims), 1);
    EXPECT_TRUE(ExpectSameAsReference(Slice(SortedRows(random, kSplit, dims, 40), start, InBox(start, 30))));
  }
}

TEST(SparseSliceGradInChunks, RowsInNoOrder) {
  Generator random(8);
  for (int64_t dims = 1; dims <= 6; ++dims) {
    SCOPED_TRACE(dims);
    const Row start(static_cast<size_t>(dims), 1);
    EXPECT_TRUE(ExpectSameAsReference(Slice(RandomRows(random, kSplit, dims, 40), start, InBox(start, 30))));
  }
}

TEST(SparseSliceGradInChunks, RowsInFallingOrder) {
  Generator random(9);
  std::vector<Row> rows = SortedRows(random, kSplit, 2, 1000);
  std::reverse(rows.begin(), rows.end());
  EXPECT_TRUE(ExpectSameAsReference(Slice(rows, {100, 100}, InBox({100, 100}, 700))));
}

// Sorted but for one pair of rows: only the guesses after it are wrong, or only one.
TEST(SparseSliceGradInChunks, TwoRowsChangePlaces) {
  Generator random(10);
  for (int repeat = 0; repeat < 10; ++repeat) {
    std::vector<Row> rows = SortedRows(random, kSplit, 1, 1'000'000);
    std::swap(rows[static_cast<size_t>(random.Below(kSplit))], rows[static_cast<size_t>(random.Below(kSplit))]);
    EXPECT_TRUE(ExpectSameAsReference(Slice(rows, {1000}, InBox({1000}, 900'000))));
  }
}

TEST(SparseSliceGradInChunks, EqualRowsCrossTheEndsOfChunks) {
  Generator random(11);
  for (const int64_t run : {2, 3, 1000, 1025, 8192, 20'000, 100'000}) {  // shorter and longer than what is skipped
    SCOPED_TRACE(run);
    std::vector<Row> rows;
    for (int64_t i = 0; i < kSplit; ++i) rows.push_back({i / run, 0});
    EXPECT_TRUE(ExpectSameAsReference(Slice(rows, {0, 0}, [&](const Row& row) { return row[0] % 2 == 0; })));
    // Of the equal rows only some have a gradient: the first ones take them.
    EXPECT_TRUE(ExpectSameAsReference(Slice(rows, {0, 0}, [&](const Row&) { return random.Below(3) == 0; })));
  }
}

TEST(SparseSliceGradInChunks, StartsThatWrapAround) {
  Generator random(12);
  for (const Row& start : {Row{kMax, kMin}, Row{kMin, kMax}, Row{-1, kMin + 5}, Row{kMax - 3, -5}}) {
    std::vector<Row> rows = SortedRows(random, kSplit, 2, 300);
    for (Row& row : rows) {
      for (int64_t& column : row) column = WrappingAdd(column, kMax - 150);  // half of them wrap
    }
    EXPECT_TRUE(ExpectSameAsReference(Slice(rows, start, [&](const Row&) { return random.Below(2) == 0; })));
    std::sort(rows.begin(), rows.end());
    EXPECT_TRUE(ExpectSameAsReference(Slice(rows, start, [](const Row& row) { return row[0] % 3 != 0; })));
  }
}

TEST(SparseSliceGradInChunks, AGradientWithoutEntryStopsAllThatFollow) {
  Generator random(13);
  const Row start = {10};
  const Indices good = Slice(SortedRows(random, kSplit, 1, 100'000), start, InBox(start, 80'000));
  for (int repeat = 0; repeat < 10; ++repeat) {
    Indices indices = good;
    indices.output[static_cast<size_t>(random.Below(indices.m()))] = {-1};
    EXPECT_FALSE(ExpectSameAsReference(indices));
  }
  Indices first = good;
  first.output.front() = {kMax};
  EXPECT_FALSE(ExpectSameAsReference(first));
  Indices last = good;
  last.output.back() = {kMax};
  EXPECT_FALSE(ExpectSameAsReference(last));
}

TEST(SparseSliceGradInChunks, ExtraMemoryIsAFewBytesPerWorker) {
  Generator random(14);
  const Row start = {10};
  const Indices indices = Slice(SortedRows(random, kCopySplit, 1, 1000), start, InBox(start, 80));
  CountingAllocator allocator;
  Context ctx;
  ctx.allocator = &allocator;
  ctx.executor = &::raggrad::testing::Pool(7);
  ASSERT_THAT(SparseSliceGrad(Array(std::vector<float>(indices.output.size())), indices.Matrix(indices.input),
                              Array(start), indices.Matrix(indices.output), ctx),
              IsOk());
  EXPECT_LE(allocator.peak_bytes(), kCopySplit * sizeof(float) + size_t{7} * 64);
}

// The walk guesses that an input row matches if it lies in the box around the next 4096 output rows, 64 rows at a time.
// Two columns, short runs of matches; each test spoils the guess in another way, at the edges of words, runs and boxes.
class SparseSliceGradBoxes : public ::testing::Test {
 protected:
  static Indices ShortRuns() {
    std::vector<Row> rows;
    for (int64_t i = 0; i < kSplit; ++i) rows.push_back({i / 10, i % 10});
    return Slice(rows, {1000, 3}, InBox({1000, 3}, 4000));
  }
  // spoil(indices, k), for rows k of the output.
  template <class F>
  static void ForEachEdge(const F& spoil) {
    const Indices good = ShortRuns();
    for (const int64_t k : {int64_t{0}, int64_t{1}, int64_t{44}, int64_t{45}, int64_t{511}, int64_t{512}, int64_t{4095},
                            int64_t{4096}, int64_t{4097}, int64_t{8192}, good.m() - 2, good.m() - 1}) {
      SCOPED_TRACE(k);
      Indices indices = good;
      spoil(indices, k);
      ExpectSameAsReference(indices);
    }
  }
  static auto InputOf(Indices& indices, int64_t k) {
    Row row = indices.output[static_cast<size_t>(k)];
    for (size_t c = 0; c < row.size(); ++c) row[c] = WrappingAdd(row[c], indices.start[c]);
    return std::find(indices.input.begin(), indices.input.end(), row);
  }
};

TEST_F(SparseSliceGradBoxes, TheGuessIsRight) { EXPECT_TRUE(ExpectSameAsReference(ShortRuns())); }

TEST_F(SparseSliceGradBoxes, ARowInsideHasNoGradient) {
  ForEachEdge([](Indices& indices, int64_t k) { indices.output.erase(indices.output.begin() + k); });
}

TEST_F(SparseSliceGradBoxes, AGradientHasNoRow) {
  ForEachEdge([](Indices& indices, int64_t k) { indices.input.erase(InputOf(indices, k)); });
}

TEST_F(SparseSliceGradBoxes, ARowIsThereTwice) {
  ForEachEdge([](Indices& indices, int64_t k) {
    const auto row = InputOf(indices, k);
    indices.input.insert(row, Row(*row));
  });
  ForEachEdge([](Indices& indices, int64_t k) {
    const auto row = InputOf(indices, k);
    indices.input.insert(row, Row(*row));
    indices.output.insert(indices.output.begin() + k, Row(indices.output[static_cast<size_t>(k)]));
  });
}

TEST_F(SparseSliceGradBoxes, RowsChangePlaces) {
  ForEachEdge([](Indices& indices, int64_t k) { std::iter_swap(InputOf(indices, k), InputOf(indices, k / 2)); });
  ForEachEdge([](Indices& indices, int64_t k) {
    std::swap(indices.output[static_cast<size_t>(k)], indices.output[static_cast<size_t>(k / 2)]);
  });
}

TEST_F(SparseSliceGradBoxes, RowsInsideFollowTheLastGradient) {
  ForEachEdge([](Indices& indices, int64_t k) { indices.output.resize(static_cast<size_t>(k) + 1); });
}

// The next box begins in the middle of a word, with rows that the box before does not hold.
TEST_F(SparseSliceGradBoxes, BoxesOfEveryPhase) {
  for (int64_t before = 0; before < 70; ++before) {
    SCOPED_TRACE(before);
    Indices indices{{}, {0, 0}, {}};
    for (int64_t i = 0; i < before; ++i) indices.input.push_back({-1, -1});
    for (int64_t i = 0; i < 9000; ++i) {
      indices.input.push_back({i, i % 2});
      if (i >= 4200 || i % 2 == 0) indices.output.push_back({i, i % 2});
    }
    EXPECT_TRUE(ExpectSameAsReference(indices));
  }
}

TEST_F(SparseSliceGradBoxes, BoxesAsLargeAsTheNumbers) {
  const std::vector<int64_t> extremes = {kMin, kMin + 1, -1, 0, 1, kMax - 1, kMax};
  Generator random(16);
  const auto extreme = [&] { return extremes[static_cast<size_t>(random.Below(7))]; };
  for (int repeat = 0; repeat < 40; ++repeat) {
    std::vector<Row> rows;
    for (int i = 0; i < 9000; ++i) rows.push_back({extreme(), extreme()});
    const Row start = {extreme(), extreme()};
    const Row least = {extreme(), extreme()};
    EXPECT_TRUE(ExpectSameAsReference(Slice(rows, start, [&](const Row& row) {
      const Row moved = Moved(row, start);
      return moved[0] >= least[0] && moved[1] >= least[1];
    })));
  }
}

// Errors. The operands of one call, each of which a test can spoil.
struct Operands {
  Array<float> grad{{1, 2}};
  Array<int64_t> input{{0, 0, 0, 1, 1, 0}, {3, 2}};
  Array<int64_t> start{{0, 0}};
  Array<int64_t> output{{0, 0, 1, 0}, {2, 2}};

  Status Call() const { return SparseSliceGrad(grad, input, start, output).status(); }
};

TEST(SparseSliceGradErrors, ShapesInTensorFlowsOrder) {
  Operands operands;
  EXPECT_THAT(operands.Call(), IsOk());
  // Faults are added from the last check to the first: each hides those before it.
  operands.start = {{0, 0, 0}};
  EXPECT_THAT(
      operands.Call(),
      StatusIs(Code::kInvalidArgument,
               "SparseSliceGrad: Expected input_start to be a vector of length 2 but got length 3 [input_start: "
               "expected 2 elements, got 3]"));
  operands.start = {{0}, Shape{}};
  EXPECT_THAT(operands.Call(), StatusIs(Code::kInvalidArgument,
                                        HasSubstr("The input_start should be a vector but received shape [] [")));
  operands.grad = {{1, 2, 3}};
  EXPECT_THAT(operands.Call(), StatusIs(Code::kInvalidArgument,
                                        HasSubstr("# elements of backprop_val_grad and # rows of output_indices should "
                                                  "match (#nnz of sum): got 3 and 2 [")));
  operands.input = {{0, 0}, {1, 2}};
  EXPECT_THAT(operands.Call(),
              StatusIs(Code::kInvalidArgument, HasSubstr("# rows of output_indices should be not greater than of "
                                                         "input_indices, got 2 and 1 [")));
  operands.input = {{0}, {1, 1}};
  EXPECT_THAT(operands.Call(), StatusIs(Code::kInvalidArgument,
                                        HasSubstr("The input and output should have the same ndims: got: 1 and 2 [")));
  operands.grad = {{1}, {1, 1}};
  EXPECT_THAT(operands.Call(), StatusIs(Code::kInvalidArgument,
                                        HasSubstr("Input backprop_val_grad should be a vector but received shape: "
                                                  "[1,1] [")));
  operands.output = {{0}, {1}};
  EXPECT_THAT(operands.Call(),
              StatusIs(Code::kInvalidArgument,
                       AllOf(HasSubstr("Input and output indices should be matrices but received shapes: [1,1] and [1] "
                                       "["),
                             HasSubstr("output_indices: expected rank 2, got rank 1]"))));
  operands.input = {{0}, Shape{}};
  EXPECT_THAT(operands.Call(),
              StatusIs(Code::kInvalidArgument,
                       AllOf(HasSubstr("Input and output indices should be matrices but received shapes: [] and [1] ["),
                             HasSubstr("input_indices: expected rank 2, got rank 0]"))));
}

TEST(SparseSliceGradErrors, GradientsThatFindNoEntry) {
  Operands operands;
  operands.output = {{1, 0, 0, 0}, {2, 2}};
  EXPECT_THAT(operands.Call(),
              StatusIs(Code::kInternal, AllOf(HasSubstr("SparseSliceGrad: Elements of backprop_val_grad aren't all "
                                                        "propagated. Num elements:2, used: 1 ["),
                                              HasSubstr("output_indices[1]"))));
}

TEST(SparseSliceGradErrors, TypesComeFirst) {
  const Operands operands;
  TensorView views[] = {operands.grad, operands.input, operands.start, operands.output};
  const std::string names[] = {"backprop_val_grad", "input_indices", "input_start", "output_indices"};
  for (size_t k = 4; k-- > 0;) {
    views[k].dtype = DType::kQInt16;
    views[k].shape = Shape{1, 1, 1};
    EXPECT_THAT(SparseSliceGrad(views[0], views[1], views[2], views[3]),
                StatusIs(Code::kInvalidArgument, AllOf(HasSubstr("SparseSliceGrad: " + names[k] + " has dtype qint16"),
                                                       HasSubstr("got qint16"))));
  }
  for (const DType dtype : {DType::kBool, DType::kString, DType::kQUInt16, DType::kFloat8E4M3FN, DType::kInvalid}) {
    views[0].dtype = dtype;
    EXPECT_THAT(SparseSliceGrad(views[0], views[1], views[2], views[3]),
                StatusIs(Code::kInvalidArgument, HasSubstr("qint8, quint8, qint32")));
  }
}

TEST(SparseSliceGradErrors, OperandsThatAreNoArrays) {
  const Operands operands;
  const std::string names[] = {"backprop_val_grad", "input_indices", "input_start", "output_indices"};
  for (size_t k = 0; k < 4; ++k) {
    TensorView views[] = {operands.grad, operands.input, operands.start, operands.output};
    const auto call = [&] { return SparseSliceGrad(views[0], views[1], views[2], views[3]).status(); };
    views[k].data = nullptr;
    EXPECT_THAT(call(), StatusIs(Code::kInvalidArgument, HasSubstr(names[k])));
    views[k].shape = Shape{-1, 2};
    EXPECT_THAT(call(), StatusIs(Code::kInvalidArgument, HasSubstr(names[k])));
    views[k].shape = Shape{kMax, 2};
    EXPECT_THAT(call(), StatusIs(Code::kInvalidArgument, HasSubstr(names[k])));
    views[k].shape = Shape(std::vector<int64_t>(Shape::kMaxRank + 1, 1));
    EXPECT_THAT(call(), StatusIs(Code::kResourceExhausted, HasSubstr(names[k])));
  }
}

TEST(SparseSliceGradErrors, MoreRowsThanMemory) {
  const Array<float> grad(std::vector<float>{});
  const TensorView input = TensorView::Of<int64_t>(nullptr, {int64_t{1} << 60, 0});
  const TensorView output = TensorView::Of<int64_t>(nullptr, {0, 0});
  EXPECT_THAT(SparseSliceGrad(grad, input, Array<int64_t>(Row{}), output),
              StatusIs(Code::kResourceExhausted, HasSubstr("[1152921504606846976]")));
}

TEST(SparseSliceGradErrors, Devices) {
  const Operands operands;
  TensorView grad = operands.grad;
  TensorView input = operands.input;
  TensorView start = operands.start;
  TensorView output = operands.output;
  output.device = Device::kCuda;
  EXPECT_THAT(SparseSliceGrad(grad, input, start, output),
              StatusIs(Code::kInvalidArgument, HasSubstr("output_indices")));
  grad.device = input.device = Device::kCuda;
  EXPECT_THAT(SparseSliceGrad(grad, input, start, output),
              StatusIs(Code::kUnimplemented, HasSubstr("SparseSliceGrad")));
  start.device = Device::kCuda;
  EXPECT_THAT(SparseSliceGrad(grad, input, start, output), StatusIs(Code::kInvalidArgument, HasSubstr("input_start")));
}

TEST(SparseSliceGrad, AgreesWithFiniteDifferences) {
  Generator random(15);
  const Row start = {2, 1};
  const Indices indices = Slice(SortedRows(random, 50, 2, 8), start, InBox(start, 4));
  const auto values = random.Values<double>(indices.n());
  const auto weights = random.Values<double>(indices.m());
  const auto forward = [&](const std::vector<double>& input_values) {
    std::vector<double> kept;
    for (size_t i = 0; i < input_values.size(); ++i) {
      if (InBox(start, 4)(indices.input[i])) kept.push_back(input_values[i]);
    }
    return kept;
  };
  const auto loss = [&](const std::vector<double>& input_values) {
    const std::vector<double> kept = forward(input_values);
    double sum = 0;
    for (size_t k = 0; k < kept.size(); ++k) sum += weights[k] * kept[k] * kept[k];
    return sum;
  };
  std::vector<double> grad = forward(values);
  for (size_t k = 0; k < grad.size(); ++k) grad[k] *= 2 * weights[k];
  const auto got =
      SparseSliceGrad(Array(grad), indices.Matrix(indices.input), Array(start), indices.Matrix(indices.output));
  ASSERT_THAT(got, IsOk());

  const double step = 1e-4;
  for (size_t i = 0; i < values.size(); ++i) {
    auto up = values;
    auto down = values;
    up[i] += step;
    down[i] -= step;
    EXPECT_NEAR(got->As<double>()[i], (loss(up) - loss(down)) / (2 * step), 1e-8);
  }
}

}  // namespace
}  // namespace raggrad
