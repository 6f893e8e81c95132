// The CPU's results and errors on a GPU, with right and wrong guesses of the cursor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "raggrad/ops/sparse_slice/kernels.h"
#include "raggrad/testing/always_the_same.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/generators.h"
#include "raggrad/testing/gtest_types.h"
#include "raggrad/testing/on_device.h"
#include "raggrad/testing/random_tensor.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

using ::testing::HasSubstr;

using Row = std::vector<int64_t>;

Array<int64_t> Matrix(const std::vector<Row>& rows, size_t d) {
  Array<int64_t> matrix({}, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(d)});
  for (const Row& row : rows) matrix.values.insert(matrix.values.end(), row.begin(), row.end());
  return matrix;
}

std::vector<Row> RandomRows(Generator& random, int64_t count, size_t d, int64_t limit, bool sorted) {
  std::vector<Row> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(random.UniformIds<int64_t>(static_cast<int64_t>(d), limit));
  if (sorted) std::sort(rows.begin(), rows.end());
  return rows;
}

// The rows with start <= row < start + size in every column, moved by -start.
std::vector<Row> Slice(const std::vector<Row>& rows, const Row& start, int64_t size) {
  std::vector<Row> kept;
  for (Row row : rows) {
    bool inside = true;
    for (size_t c = 0; c < row.size(); ++c) {
      row[c] -= start[c];
      inside = inside && row[c] >= 0 && row[c] < size;
    }
    if (inside) kept.push_back(std::move(row));
  }
  return kept;
}

void ExpectSameGrad(const TensorView& grad, const Array<int64_t>& input, const Row& start,
                    const Array<int64_t>& output) {
  const Array host_start(start);
  ExpectSame(SparseSliceGrad(OnDevice(grad), OnDevice(input), host_start, OnDevice(output)),
             SparseSliceGrad(grad, input, host_start, output));
}

void ExpectSameGrad(Generator& random, DType dtype, const std::vector<Row>& input, const Row& start,
                    const std::vector<Row>& output) {
  const Tensor grad = HostileTensor(random, dtype, Shape{static_cast<int64_t>(output.size())});
  ExpectSameGrad(grad.view(), Matrix(input, start.size()), start, Matrix(output, start.size()));
}

class SparseSliceGradCudaTest : public GpuTest, public ::testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(Each, SparseSliceGradCudaTest, EachDType(sparse_slice::ValueTypes{}), NameOfDType);

TEST_P(SparseSliceGradCudaTest, SlicesOfAnyOrder) {
  Generator random(1);
  for (const size_t d : {1U, 2U, 3U, 4U, 5U, 9U}) {
    for (const int64_t n : {0, 1, 31, 1023, 1025, 5000}) {
      for (const bool sorted : {true, false}) {
        SCOPED_TRACE(std::to_string(n) + " rows, " + std::to_string(d) + " columns");
        const std::vector<Row> input = RandomRows(random, n, d, 10, sorted);
        Row start(d, 1);
        start[0] = 4;
        ExpectSameGrad(random, GetParam(), input, start, Slice(input, start, 8));
      }
    }
  }
}

class SparseSliceCudaTest : public GpuTest {};

TEST_F(SparseSliceCudaTest, ManyRows) {
  Generator random(2);
  for (const size_t d : {2U, 4U}) {
    const std::vector<Row> input = RandomRows(random, 300'000, d, 1000, true);
    const Row start(d, 100);
    ExpectSameGrad(random, DType::kFloat32, input, start, Slice(input, start, 700));
    ExpectSameGrad(random, DType::kFloat32, input, start, {});
    ExpectSameGrad(random, DType::kFloat32, input, Row(d, 0), input);
  }
}

// The output is no slice: its rows are rows of the input in order, but chosen at random, not by a box.
TEST_F(SparseSliceCudaTest, WrongGuesses) {
  Generator random(3);
  for (const size_t d : {1U, 2U, 5U}) {
    for (int round = 0; round < 20; ++round) {
      const std::vector<Row> input = RandomRows(random, 1 + random.Below(4000), d, 5, round % 2 == 0);
      std::vector<Row> output;
      for (const Row& row : input) {
        if (random.Below(3) == 0) output.push_back(row);
      }
      ExpectSameGrad(random, DType::kFloat64, input, Row(d, 0), output);
    }
  }
}

// An executor that knows whether anybody asked it to work.
class WatchedExecutor final : public Executor {
 public:
  int num_workers() const noexcept override {
    asked_ = true;
    return 1;
  }
  void Run(int64_t tasks, TaskRef body) noexcept override { SerialExecutor().Run(tasks, body); }
  bool asked() const noexcept { return asked_; }

 private:
  mutable bool asked_ = false;
};

TEST_F(SparseSliceCudaTest, HostWalksOnlyAfterAWrongGuess) {
  Generator random(11);
  const auto host_walks = [&](const std::vector<Row>& input, const Row& start, const std::vector<Row>& output) {
    const Array host_start(start);
    const OnDevice grad(Array(random.Values<float>(static_cast<int64_t>(output.size()))));
    WatchedExecutor executor;
    Context ctx;
    ctx.executor = &executor;
    EXPECT_THAT(SparseSliceGrad(grad, OnDevice(Matrix(input, start.size())), host_start,
                                OnDevice(Matrix(output, start.size())), ctx),
                IsOk());
    return executor.asked();
  };
  for (const size_t d : {1U, 2U, 3U, 4U, 9U}) {
    const Row start(d, 3);
    for (const bool sorted : {true, false}) {
      const std::vector<Row> input = RandomRows(random, 3000, d, 20, sorted);
      EXPECT_FALSE(host_walks(input, start, Slice(input, start, 15)));
      EXPECT_FALSE(host_walks(input, start, {}));
    }
  }
  EXPECT_TRUE(host_walks({{0}, {1}, {2}}, {0}, {{0}, {2}}));
}

TEST_F(SparseSliceCudaTest, GradientsWithoutAnEntry) {
  Generator random(4);
  for (int round = 0; round < 20; ++round) {
    const std::vector<Row> input = RandomRows(random, 3000, 2, 50, true);
    std::vector<Row> output = Slice(input, {10, 20}, 20);
    const size_t where = static_cast<size_t>(random.Below(static_cast<int64_t>(output.size())));
    if (round % 2 == 0) {
      output.insert(output.begin() + static_cast<ptrdiff_t>(where), {random.Below(20), 100});  // no such entry
    } else {
      output.insert(output.end(), output.back());  // once too often
    }
    ExpectSameGrad(random, DType::kFloat32, input, {10, 20}, output);
  }
}

TEST_F(SparseSliceCudaTest, IndicesThatWrap) {
  Generator random(5);
  constexpr auto kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
  const std::vector<Row> input = {{kMin, kMax}, {kMin + 1, 3}, {0, kMin}, {7, 0}, {kMax, kMax}};
  ExpectSameGrad(random, DType::kFloat32, input, {1, -1}, {{kMax, kMin}, {kMin, 4}, {kMax - 1, kMin}});
  ExpectSameGrad(random, DType::kFloat32, input, {kMin, kMax}, {{0, 0}, {kMin, 1}});
  ExpectSameGrad(random, DType::kFloat32, input, {0, 0}, {{kMin, kMax}, {kMax, kMax}});
}

TEST_F(SparseSliceCudaTest, WithoutColumnsAndWithVeryMany) {
  Generator random(6);
  ExpectSameGrad(random, DType::kFloat32, std::vector<Row>(2000), {}, std::vector<Row>(700));
  const std::vector<Row> input = RandomRows(random, 300, 300, 2, false);
  ExpectSameGrad(random, DType::kFloat32, input, Row(300, 0), {input.begin(), input.begin() + 100});
}

TEST_F(SparseSliceCudaTest, GradReportsEveryAllocationFailure) {
  Generator random(7);
  const std::vector<Row> rows = RandomRows(random, 3000, 2, 50, true);
  const Row start = {10, 20};
  const Array host_start(start);
  const OnDevice input(Matrix(rows, 2)), output(Matrix(Slice(rows, start, 20), 2));
  const OnDevice grad(Array(random.Values<float>(output.view().dim(0))));
  ExpectEveryDeviceAllocationFailureIsReported(
      [&](const Context& ctx) { return SparseSliceGrad(grad, input, host_start, output, ctx).status(); });
}

// Compares all outputs of the forward with the CPU's, or its error.
void ExpectSameSlice(const TensorView& indices, const TensorView& values, const Row& shape, const Row& start,
                     const Row& size) {
  const Array host_shape(shape), host_start(start), host_size(size);
  const auto got = SparseSlice(OnDevice(indices), OnDevice(values), host_shape, host_start, host_size);
  const auto want = SparseSlice(indices, values, host_shape, host_start, host_size);
  ExpectSame(got, want, &SparseSliceOutput::output_indices, &SparseSliceOutput::output_values);
  if (!got.ok()) return;
  EXPECT_EQ(got->output_shape.view().device, Device::Cpu());
  EXPECT_EQ(Difference(got->output_shape.view(), want->output_shape.view()), "");
}

using TypesButStrings = JoinLists<NumberTypes, TypeList<bool>>;
class SparseSliceForwardCudaTest : public GpuTest, public ::testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(Each, SparseSliceForwardCudaTest, EachDType(TypesButStrings{}), NameOfDType);

TEST_P(SparseSliceForwardCudaTest, HasTheCpusResult) {
  Generator random(8);
  for (const size_t d : {0U, 1U, 2U, 3U, 4U, 5U, 20U}) {
    for (const int64_t n : {0, 1, 31, 1023, 1025, 5000}) {
      SCOPED_TRACE(std::to_string(n) + " rows, " + std::to_string(d) + " columns");
      const Array indices = Matrix(RandomRows(random, n, d, 8, false), d);
      const Tensor values = HostileTensor(random, GetParam(), Shape{n});
      Row start(d, 0), size(d, 8);
      if (d > 0) start[0] = 2;
      if (d > 1) size[1] = 5;
      ExpectSameSlice(indices, values.view(), Row(d, 8), start, size);
      ExpectSameSlice(indices, values.view(), Row(d, 8), start, Row(d, 0));
    }
  }
}

TEST_F(SparseSliceCudaTest, ForwardOfManyRowsAndOfOddBoxes) {
  Generator random(9);
  const Array indices = Matrix(RandomRows(random, 300'000, 3, 1000, true), 3);
  const Array values = random.Values<float>(300'000);
  ExpectSameSlice(indices, values, {1000, 1000, 1000}, {100, 0, 500}, {700, 1000, 500});
  ExpectSameSlice(indices, values, {1000, 1000, 1000}, {-5, 0, 0}, {50, 1000, 1000});
  ExpectSameSlice(indices, values, {10, 1000, 1000}, {20, 0, 0}, {-3, 1000, 1000});
  ExpectSameSlice(indices, values, {1000, 1000, 1000}, {0, 0, 0}, {-3, 1000, 1000});
}

TEST_F(SparseSliceCudaTest, AlwaysTheSame) {
  Generator random(12);
  const std::vector<Row> rows = RandomRows(random, 100'000, 2, 1000, true);
  const Row box = {100, 200};
  const OnDevice indices(Matrix(rows, 2)), values(Array(random.Values<float>(100'000)));
  const OnDevice kept(Matrix(Slice(rows, box, 700), 2)), grad(Array(random.Values<float>(kept.view().dim(0))));
  const Array shape(Row{1000, 1000}), start(box), size(Row{700, 700});
  ExpectAlwaysTheSame([&](const Context& ctx) { return SparseSliceGrad(grad, indices, start, kept, ctx); });
  ExpectAlwaysTheSame([&](const Context& ctx) { return SparseSlice(indices, values, shape, start, size, ctx); },
                      [](const SparseSliceOutput& result) {
                        return std::vector{result.output_indices.view(), result.output_values.view()};
                      });
}

TEST_F(SparseSliceCudaTest, ForwardReportsEveryAllocationFailure) {
  Generator random(10);
  const OnDevice indices(Matrix(RandomRows(random, 3000, 2, 50, true), 2));
  const OnDevice values(Array(random.Values<float>(3000)));
  const Array shape(Row{50, 50}), start(Row{10, 20}), size(Row{30, 10});
  ExpectEveryDeviceAllocationFailureIsReported(
      [&](const Context& ctx) { return SparseSlice(indices, values, shape, start, size, ctx).status(); });
}

TEST_F(SparseSliceCudaTest, StringsHaveNoKernels) {
  const TensorView none{nullptr, DType::kString, Shape{0}, Device::Cuda()};
  const OnDevice indices(Array<int64_t>({}, Shape{0, 1}));
  const Array one(Row{1});
  EXPECT_THAT(SparseSlice(indices, none, one, one, one),
              StatusIs(Code::kUnimplemented, HasSubstr("SparseSlice: there are no kernels for strings")));
}

}  // namespace
}  // namespace raggrad::testing
