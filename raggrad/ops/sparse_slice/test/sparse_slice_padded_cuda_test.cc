// The CPU's padded results on a GPU, in CUDA graphs, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "raggrad/ops/sparse_slice/kernels.h"
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
using Output = SparseSlicePaddedOutput;

void ExpectSameSlice(const Result<Output>& got, const Result<Output>& want, const Context& ctx = {}) {
  ExpectSamePadded(got, want, ctx, &Output::output_indices, &Output::output_values);
  if (!got.ok() || !want.ok()) return;
  EXPECT_EQ(got->output_shape.view().device, Device::Cpu());
  EXPECT_EQ(Difference(got->output_shape.view(), want->output_shape.view()), "");
}

// A box, and its operands in host memory.
struct Box {
  Array<int64_t> shape, start, size;

  Result<Output> Slice(const TensorView& indices, const TensorView& values, int64_t max_kept,
                       const Context& ctx = {}) const {
    return SparseSlicePadded(indices, values, shape, start, size, max_kept, ctx);
  }
};

Array<int64_t> RandomIndices(Generator& random, int64_t n, int64_t d, int64_t limit) {
  return {random.UniformIds<int64_t>(n * d, limit), Shape{n, d}};
}

using TypesButStrings = JoinLists<NumberTypes, TypeList<bool>>;
class SparseSlicePaddedCudaTyped : public GpuTest, public ::testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(Each, SparseSlicePaddedCudaTyped, EachDType(TypesButStrings{}), NameOfDType);

TEST_P(SparseSlicePaddedCudaTyped, HasTheCpusResult) {
  Generator random(1);
  for (const int64_t d : {0, 1, 2, 3, 4, 5, 20}) {
    for (const int64_t n : {0, 1, 31, 1023, 1025, 5000}) {
      SCOPED_TRACE(std::to_string(n) + " rows, " + std::to_string(d) + " columns");
      const Array indices = RandomIndices(random, n, d, 8);
      const Tensor values = HostileTensor(random, GetParam(), Shape{n});
      const OnDevice device_indices(indices), device_values(values.view());
      const auto cube = [&](int64_t side) { return std::vector<int64_t>(static_cast<size_t>(d), side); };
      Box box{cube(8), cube(0), cube(8)};
      if (d > 0) box.start.values[0] = 2;
      if (d > 1) box.size.values[1] = 5;
      const auto all = SparseSlice(indices, values.view(), box.shape, box.start, box.size);
      ASSERT_THAT(all, IsOk());
      const int64_t kept = all->output_values.shape()[0];
      for (const int64_t max_kept : {kept, kept + 1, n + 300, kept - 1, int64_t{0}}) {
        if (max_kept < 0) continue;
        SCOPED_TRACE("room for " + std::to_string(max_kept) + " of " + std::to_string(kept));
        ExpectSameSlice(box.Slice(device_indices, device_values, max_kept),
                        box.Slice(indices, values.view(), max_kept));
      }
    }
  }
}

class SparseSlicePaddedCudaTest : public GpuTest {
 protected:
  const Box box_{{{1000, 1000}}, {{100, 200}}, {{700, 500}}};
};

TEST_F(SparseSlicePaddedCudaTest, ManyRowsAndOddBoxes) {
  Generator random(2);
  const Array indices = RandomIndices(random, 300'000, 2, 1000);
  const Array values = random.Values<float>(300'000);
  const OnDevice device_indices(indices), device_values(values);
  for (const Box& box : {box_, Box{{{1000, 1000}}, {{-5, 0}}, {{50, 1000}}}, Box{{{10, 1000}}, {{20, 0}}, {{-3, 9}}}}) {
    ExpectSameSlice(box.Slice(device_indices, device_values, 200'000), box.Slice(indices, values, 200'000));
  }
  ExpectAlwaysTheSame(
      [&](const Context& ctx) { return box_.Slice(device_indices, device_values, 200'000, ctx); },
      [](const Output& result) {
        return std::vector{result.output_indices.view(), result.output_values.view(), result.report.view()};
      });
}

TEST_F(SparseSlicePaddedCudaTest, NeverWaits) {
  Generator random(3);
  const Array indices = RandomIndices(random, 3000, 2, 1000);
  const Array values = random.Values<float>(3000);
  const OnDevice device_indices(indices), device_values(values);
  ExpectNoWait([&](const Context& ctx) { return box_.Slice(device_indices, device_values, 3000, ctx); },
               box_.Slice(indices, values, 3000), &Output::output_indices, &Output::output_values);
}

TEST_F(SparseSlicePaddedCudaTest, CanBeCapturedAndReplayed) {
  constexpr int64_t kEntries = 3000, kMax = 2000;
  Generator random(4);
  const Array first = RandomIndices(random, kEntries, 2, 1000), second = RandomIndices(random, kEntries, 2, 1000);
  const Array<int64_t> nothing(std::vector<int64_t>(2 * kEntries, 1), Shape{kEntries, 2});
  const Array<int64_t> everything(std::vector<int64_t>(2 * kEntries, 300), Shape{kEntries, 2});
  const Array values = random.Values<float>(kEntries), other_values = random.Values<float>(kEntries);
  const OnDevice indices(first), device_values(values);
  const auto run = [&](const Context& ctx) { return box_.Slice(indices, device_values, kMax, ctx); };
  ASSERT_THAT(run({}), IsOk());  // the first call loads kernels, which cannot be captured
  CapturedGraph graph;
  const auto padded = graph.Capture(run);
  ASSERT_THAT(padded, IsOk());
  for (const Array<int64_t>* entries : {&second, &first, &everything, &nothing, &second}) {
    graph.Overwrite(indices, *entries);
    graph.Replay();
    ExpectSameSlice(padded, box_.Slice(*entries, values, kMax));
  }
  graph.Overwrite(device_values, other_values);
  graph.Replay();
  ExpectSameSlice(padded, box_.Slice(second, other_values, kMax));
}

TEST_F(SparseSlicePaddedCudaTest, ReportsEveryAllocationFailure) {
  Generator random(5);
  const OnDevice indices(RandomIndices(random, 3000, 2, 1000)), values(Array(random.Values<float>(3000)));
  ExpectEveryDeviceAllocationFailureIsReported(
      [&](const Context& ctx) { return box_.Slice(indices, values, 3000, ctx).status(); });
}

TEST_F(SparseSlicePaddedCudaTest, RefusesStringsAndNegativeRoom) {
  const TensorView none{nullptr, DType::kString, Shape{0}, Device::Cuda()};
  const OnDevice indices(Array<int64_t>({}, Shape{0, 2})), values(Array<float>({}));
  EXPECT_THAT(box_.Slice(indices, none, 5),
              StatusIs(Code::kUnimplemented, HasSubstr("SparseSlice: there are no kernels for strings")));
  EXPECT_THAT(box_.Slice(indices, values, -1), StatusIs(Code::kInvalidArgument, HasSubstr("[max_kept: expected")));
}

}  // namespace
}  // namespace raggrad::testing
