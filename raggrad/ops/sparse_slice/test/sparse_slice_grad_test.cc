// The gradient for every type and order, and its errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "raggrad/ops/sparse_slice/kernels.h"
#include "raggrad/ops/sparse_slice/test/test_slices.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/random_tensor.h"

namespace raggrad::sparse_slice {
namespace {

using ::raggrad::testing::EachDType;
using ::raggrad::testing::ExpectEveryAllocationFailureIsReported;
using ::raggrad::testing::HostileTensor;
using ::raggrad::testing::IsOk;
using ::raggrad::testing::NameOfDType;
using ::raggrad::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class EveryValue : public ::testing::TestWithParam<DType> {
 protected:
  static Tensor Gradients(Generator& random, int64_t m) { return HostileTensor(random, GetParam(), Shape{m}); }
};
INSTANTIATE_TEST_SUITE_P(Each, EveryValue, EachDType(ValueTypes{}), NameOfDType);

TEST_P(EveryValue, RandomLexicographicSlices) {
  Generator random(1);
  for (int repeat = 0; repeat < 60; ++repeat) {
    const int64_t dims = random.Below(7);
    const Row start = random.UniformIds<int64_t>(dims, 4);
    const Indices indices = Slice(SortedRows(random, random.Below(40), dims, 6), start, InBox(start, 3));
    EXPECT_TRUE(ExpectSameAsReference(indices, Gradients(random, indices.m()).view()));
  }
}

TEST_P(EveryValue, IsSplitOverThreads) {
  Generator random(2);
  const Row start = {10, 20};
  const Indices indices = Slice(SortedRows(random, kSplit, 2, 300), start, InBox(start, 200));
  EXPECT_TRUE(ExpectSameAsReference(indices, Gradients(random, indices.m()).view()));
}

TEST_P(EveryValue, CopiesAllBitsOfNaNs) {
  Generator random(3);
  const Indices indices = Slice(SortedRows(random, 1001, 1, kMax), {7}, [](const Row&) { return true; });
  const Tensor grad = Gradients(random, 1001);
  const auto got =
      SparseSliceGrad(grad.view(), indices.Matrix(indices.input), Array(indices.start), indices.Matrix(indices.output));
  ASSERT_THAT(got, IsOk());
  ASSERT_EQ(got->bytes(), grad.bytes());
  EXPECT_EQ(std::memcmp(got->As<char>(), grad.As<char>(), grad.bytes()), 0);
}

TEST_P(EveryValue, NoColumnsNoGradientsNoRows) {
  Generator random(4);
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{9}, kCopySplit}) {
    for (const int64_t m : {int64_t{0}, n / 3, n}) {
      SCOPED_TRACE(std::to_string(m) + " of " + std::to_string(n));
      EXPECT_TRUE(ExpectSameAsReference(Gradients(random, m).view(), {{}, {n, 0}}, {{}}, {{}, {m, 0}}));
    }
    const Array<int64_t> input(random.UniformIds<int64_t>(2 * n, 5), {n, 2});
    EXPECT_TRUE(ExpectSameAsReference(Gradients(random, 0).view(), input, {{1, 2}}, {{}, {0, 2}}));
  }
}

TEST_P(EveryValue, ReportsEveryAllocationFailure) {
  Generator random(5);
  const Row start = {10};
  const Indices indices = Slice(SortedRows(random, kSplit, 1, 300), start, InBox(start, 200));
  const Tensor grad = Gradients(random, indices.m());
  const Array input = indices.Matrix(indices.input);
  const Array output = indices.Matrix(indices.output);
  for (const int workers : {1, 7}) {
    Context ctx;
    ctx.executor = &::raggrad::testing::SharedExecutor(workers);
    ExpectEveryAllocationFailureIsReported(ctx, [&](const Context& failing) {
      return SparseSliceGrad(grad.view(), input, Array(start), output, failing).status();
    });
  }
}

// Few different rows in any order give repeats, near misses and gradients that find no entry.
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

// The operands of one call. Tests of errors spoil one after the other.
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
  // Faults are added from the last check to the first: each new one hides those added before.
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

TEST(SparseSliceGradErrors, MoreRowsThanMemoryHolds) {
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
  output.device = Device::Cuda();
  EXPECT_THAT(SparseSliceGrad(grad, input, start, output),
              StatusIs(Code::kInvalidArgument, HasSubstr("output_indices")));
  grad.device = input.device = Device::Cuda();
  EXPECT_THAT(SparseSliceGrad(grad, input, start, output),
              StatusIs(Code::kUnimplemented, HasSubstr("SparseSliceGrad")));
  start.device = Device::Cuda();
  EXPECT_THAT(SparseSliceGrad(grad, input, start, output), StatusIs(Code::kInvalidArgument, HasSubstr("input_start")));
}

}  // namespace
}  // namespace raggrad::sparse_slice
