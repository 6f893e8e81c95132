#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "raggrad/ops/sparse_slice/kernels.h"
#include "raggrad/ops/sparse_slice/test/reference.h"
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
using ::raggrad::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace reference = sparse_slice::reference;

constexpr int64_t kSplit = 7 * 8192 + 100;  // entries enough for seven threads
constexpr auto kMin = std::numeric_limits<int64_t>::min();
constexpr auto kMax = std::numeric_limits<int64_t>::max();

using Ints = std::vector<int64_t>;

struct Box {
  Ints shape, start, size;
};

Box Cube(int64_t d, int64_t shape, int64_t start, int64_t size) {
  const size_t dims = static_cast<size_t>(d);
  return {Ints(dims, shape), Ints(dims, start), Ints(dims, size)};
}

// Expects the reference's bits, or its failure, under every setting. Returns whether it was a success.
bool ExpectSameAsReference(const Ints& indices, const Box& box, const TensorView& values) {
  const int64_t d = static_cast<int64_t>(box.shape.size());
  const int64_t n = values.dim(0);
  const auto want = reference::Slice(indices, box.shape, box.start, box.size, n);
  const Tensor want_values = Gather(values, want.sources);
  ForEachSetting([&](const Context& ctx) {
    const auto got =
        SparseSlice(Array(indices, {n, d}), values, Array(box.shape), Array(box.start), Array(box.size), ctx);
    if (!want.ok) {
      EXPECT_THAT(got, StatusIs(Code::kInvalidArgument, HasSubstr("SparseSlice: ")));
      return;
    }
    ASSERT_THAT(got, IsOk());
    const int64_t kept = static_cast<int64_t>(want.sources.size());
    EXPECT_TRUE(HoldsBits(got->output_indices.view(), Array(want.output_indices, {kept, d})));
    EXPECT_EQ(Difference(got->output_values.view(), want_values.view()), "");
    EXPECT_TRUE(HoldsBits(got->output_shape.view(), Array(want.output_shape)));
  });
  return want.ok;
}

bool ExpectSameAsReference(Generator& random, const Ints& indices, const Box& box, int64_t n) {
  return ExpectSameAsReference(indices, box, Array(random.Values<int16_t>(n)));
}

class EveryValue : public ::testing::TestWithParam<DType> {
 protected:
  Generator random_{1};
};
INSTANTIATE_TEST_SUITE_P(Each, EveryValue, EachDType(sparse_slice::SliceTypes{}), NameOfDType);

TEST_P(EveryValue, MatchesTheReference) {
  for (int64_t d = 0; d <= 6; ++d) {
    for (const int64_t n : {0, 1, 63, 64, 65, 200}) {
      SCOPED_TRACE(std::to_string(n) + " entries, " + std::to_string(d) + " columns");
      const Tensor values = HostileTensor(random_, GetParam(), Shape{n});
      const auto indices = random_.UniformIds<int64_t>(n * d, 6);
      for (const int64_t size : {0, 3, 5, 6}) {
        EXPECT_TRUE(ExpectSameAsReference(indices, Cube(d, 6, 1, size), values.view()));
        EXPECT_TRUE(ExpectSameAsReference(indices, Cube(d, 6, 0, size), values.view()));
      }
    }
  }
}

TEST_P(EveryValue, IsSplitOverThreads) {
  const Tensor values = HostileTensor(random_, GetParam(), Shape{kSplit});
  const auto indices = random_.UniformIds<int64_t>(2 * kSplit, 100);
  for (const int64_t size : {1, 50, 90}) {
    EXPECT_TRUE(ExpectSameAsReference(indices, Cube(2, 100, 5, size), values.view()));
  }
}

TEST_P(EveryValue, ReportsEveryAllocationFailure) {
  const Tensor values = HostileTensor(random_, GetParam(), Shape{kSplit});
  const Array<int64_t> indices(random_.UniformIds<int64_t>(kSplit, 100), {kSplit, 1});
  for (const int workers : {1, 7}) {
    Context ctx;
    ctx.executor = &::raggrad::testing::SharedExecutor(workers);
    ExpectEveryAllocationFailureIsReported(ctx, [&](const Context& failing) {
      return SparseSlice(indices, values.view(), Array<int64_t>({100}), Array<int64_t>({10}), Array<int64_t>({50}),
                         failing)
          .status();
    });
  }
}

TEST(SparseSlice, SlicesASmallExample) {
  const auto got = SparseSlice(Array<int64_t>({0, 1, 2, 3, 3, 0}, {3, 2}), Array<float>({1, 2, 3}),
                               Array<int64_t>({4, 5}), Array<int64_t>({1, 2}), Array<int64_t>({2, 9}));
  ASSERT_THAT(got, IsOk());
  EXPECT_TRUE(HoldsBits(got->output_indices.view(), Array<int64_t>({1, 1}, {1, 2})));
  EXPECT_TRUE(HoldsBits(got->output_values.view(), Array<float>({2})));
  EXPECT_TRUE(HoldsBits(got->output_shape.view(), Array<int64_t>({2, 3})));
}

// Runs of kept entries and of others, of every length.
TEST(SparseSlice, RunsOfKeptEntries) {
  Generator random(2);
  for (const int64_t longest : {1, 3, 64, 200, 30'000}) {
    SCOPED_TRACE(longest);
    Ints indices;
    bool inside = false;
    for (int64_t n = 0; n < kSplit; inside = !inside) {
      for (int64_t run = 1 + random.Below(longest); run > 0 && n < kSplit; --run, ++n) {
        indices.push_back(inside ? 1 : 7);
      }
    }
    EXPECT_TRUE(ExpectSameAsReference(random, indices, Cube(1, 10, 1, 3), kSplit));
  }
}

TEST(SparseSlice, ManyColumns) {
  Generator random(3);
  for (const int64_t d : {5, 9, 100, 254}) {
    SCOPED_TRACE(d);
    Ints indices = random.UniformIds<int64_t>(100 * d, 10);
    for (size_t i = 0; i < indices.size(); ++i) {
      if (i % 7 < 6) indices[i] = 1;
    }
    Box box = Cube(d, 1, 0, 1);
    for (size_t c = 0; c < box.shape.size(); c += 40) {
      box.shape[c] = 10;
      box.start[c] = 1;
      box.size[c] = 9;
    }
    for (size_t c = 1; c < box.shape.size(); c += 2) box.size[c] = 100;
    EXPECT_TRUE(ExpectSameAsReference(random, indices, box, 100));
  }
}

// Shape, start and size at the ends of int64, in every combination.
TEST(SparseSlice, HostileBoxes) {
  Generator random(4);
  const Ints ends = {kMin, kMin + 1, kMin + 5, -3, -1, 0, 1, 2, 5, 9, kMax - 5, kMax - 1, kMax};
  const int64_t n = static_cast<int64_t>(ends.size());
  int successes = 0;
  for (const int64_t shape : ends) {
    for (const int64_t start : ends) {
      for (const int64_t size : ends) {
        SCOPED_TRACE(std::to_string(shape) + " " + std::to_string(start) + " " + std::to_string(size));
        successes += ExpectSameAsReference(random, ends, {{shape}, {start}, {size}}, n) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(successes, 800);
  EXPECT_LT(successes, 900);
}

TEST(SparseSlice, HostileBoxesOfTwoColumns) {
  Generator random(5);
  const Ints ends = {kMin, -4, -1, 0, 1, 3, 7, int64_t{1} << 31, int64_t{1} << 40, kMax};
  int successes = 0;
  for (int repeat = 0; repeat < 3000; ++repeat) {
    const auto some = [&](int64_t count) {
      Ints ints;
      for (int64_t i = 0; i < count; ++i) ints.push_back(ends[static_cast<size_t>(random.Below(10))]);
      return ints;
    };
    successes += ExpectSameAsReference(random, some(20), {some(2), some(2), some(2)}, 10) ? 1 : 0;
  }
  EXPECT_GT(successes, 300);
  EXPECT_LT(successes, 2700);
}

TEST(SparseSlice, ExtraMemoryIsABitPerEntry) {
  Generator random(6);
  const Array<int64_t> indices(random.UniformIds<int64_t>(kSplit, 100), {kSplit, 1});
  const Array values = random.Values<double>(kSplit);
  CountingAllocator allocator;
  Context ctx;
  ctx.allocator = &allocator;
  ctx.executor = &::raggrad::testing::SharedExecutor(7);
  const auto got = SparseSlice(indices, values, Array<int64_t>({100}), Array<int64_t>({0}), Array<int64_t>({50}), ctx);
  ASSERT_THAT(got, IsOk());
  const size_t outputs = static_cast<size_t>(got->output_values.shape()[0]) * 16 + 8;
  EXPECT_LE(allocator.peak_bytes(), outputs + kSplit / 8 + 8 + size_t{7} * 4 * 8);
}

// The operands of one call. Tests of errors spoil one after the other.
struct Operands {
  Array<int64_t> indices{{0, 0, 1, 1}, {2, 2}};
  Array<float> values{{1, 2}};
  Array<int64_t> shape{{3, 3}};
  Array<int64_t> start{{0, 0}};
  Array<int64_t> size{{2, 2}};

  Status Call() const { return SparseSlice(indices, values, shape, start, size).status(); }
  void Expect(const std::string& text) const { EXPECT_THAT(Call(), StatusIs(Code::kInvalidArgument, HasSubstr(text))); }
};

TEST(SparseSliceErrors, InTensorFlowsOrder) {
  Operands operands;
  EXPECT_THAT(operands.Call(), IsOk());
  // Faults are added from the last check to the first: each new one hides those added before.
  operands.size.values = {2, -1};
  operands.Expect("SparseSlice: Expected a non-negative size, got -1 [size[1]: expected at least 0, got -1]");
  operands.size.values = {-2, -1};
  operands.Expect("Expected a non-negative size, got -2 [size[0]: ");
  operands.shape.values = {3, -8};
  operands.Expect("Expected shape dimensions to be non-negative, got -8 [shape[1]: expected at least 0, got -8]");
  operands.size = {{1, 2, 3}};
  operands.Expect("Expected size to be a vector of length 2 but got length 3 [size: ");
  operands.start = {{1}};
  operands.Expect("Expected start to be a vector of length 2 but got length 1 [start: ");
  operands.size = {{1}, {1, 1}};
  operands.Expect("Input size should be a vector but received shape [1,1] [size: ");
  operands.start = {{1}, Shape{}};
  operands.Expect("Input start should be a vector but received shape [] [start: ");
  operands.shape = {{1}};
  operands.Expect("Index rank (2) and shape rank (1) do not match [shape: ");
  operands.values = {{1, 2, 3}};
  operands.Expect("Number of elements in indices (2) and values (3) do not match [values: ");
  operands.shape = {{1}, Shape{}};
  operands.Expect("Sparse shape must be rank 1 but is rank 0 [shape: ");
  operands.values = {{1}, Shape{1, 1, 1}};
  operands.Expect("Sparse values must be rank 1 but is rank 3 [values: ");
  operands.indices = {{1}};
  operands.Expect("Sparse indices must be rank 2 but is rank 1 [indices: ");
}

TEST(SparseSliceErrors, ShapesThatNoTensorHas) {
  Operands operands;
  operands.shape.values = {int64_t{1} << 40, -8};  // TensorFlow's text for large dimensions
  operands.Expect("Expected a non-negative size, got -8 [shape[1]: ");
  operands.shape.values = {int64_t{1} << 40, int64_t{1} << 23};
  operands.Expect(
      "Encountered overflow when multiplying 1099511627776 with 8388608, result: -9223372036854775808 [shape[1]: ");
  operands.shape.values = {int64_t{1} << 40, int64_t{1} << 24};
  operands.Expect("Encountered overflow when multiplying 1099511627776 with 16777216, result: -1 [shape[1]: ");
  operands.shape.values = {int64_t{1} << 40, int64_t{1} << 22};
  operands.start.values = {-(int64_t{1} << 40), 0};
  operands.size.values = {kMax, 1};
  operands.Expect(
      "Encountered overflow when multiplying 2199023255552 with 4194304, result: -9223372036854775808: Shape "
      "[2199023255552,4194304] results in overflow when computing number of elements [start[0]: ");

  Operands wide{{{}, {0, 255}}, {{}}, {Ints(255, 1)}, {Ints(255, 0)}, {Ints(255, 1)}};
  wide.Expect("Too many dimensions in tensor [shape: expected at most 254 elements, got 255]");
  wide.shape.values[254] = -1;
  wide.Expect("Expected shape dimensions to be non-negative, got -1 [");
  wide.shape.values[0] = 100'000;
  wide.Expect("Expected a non-negative size, got -1 [");
}

TEST(SparseSliceErrors, WhereTensorFlowWraps) {
  Operands operands;
  operands.start.values = {0, 1};
  operands.size.values = {1, kMax};
  operands.Expect("start + size must be below 2^63 [size[1]: expected less than 2^63 - 1, got 9223372036854775807]");
  operands.size.values = {kMin, 1};
  operands.Expect("Expected a non-negative size, got -9223372036854775808 [size[0]: ");
  operands.start.values = {-5, 0};
  operands.Expect("Expected a non-negative size, got -9223372036854775808 [size[0]: ");
}

TEST(SparseSliceErrors, StringsWithoutCharacters) {
  const Array<String> values({String{"ab", 2}, String{nullptr, 0}, String{nullptr, 3}});
  EXPECT_THAT(SparseSlice(Array<int64_t>({0, 1, 2}, {3, 1}), values, Array<int64_t>({3}), Array<int64_t>({0}),
                          Array<int64_t>({3})),
              StatusIs(Code::kInvalidArgument, HasSubstr("values[2]: expected 3 characters, got a null pointer]")));
}

TEST(SparseSliceErrors, TypesComeFirst) {
  const Operands o;
  TensorView views[] = {o.indices, o.values, o.shape, o.start, o.size};
  const std::string names[] = {"indices", "values", "shape", "start", "size"};
  for (size_t k = 5; k-- > 0;) {
    views[k].dtype = DType::kQInt16;
    views[k].shape = Shape{1, 1, 1};
    EXPECT_THAT(SparseSlice(views[0], views[1], views[2], views[3], views[4]),
                StatusIs(Code::kInvalidArgument,
                         AllOf(HasSubstr("SparseSlice: " + names[k] + " has dtype qint16"), HasSubstr("got qint16"))));
  }
}

TEST(SparseSliceErrors, OperandsThatAreNoArrays) {
  const Operands o;
  const std::string names[] = {"indices", "values", "shape", "start", "size"};
  for (size_t k = 0; k < 5; ++k) {
    TensorView views[] = {o.indices, o.values, o.shape, o.start, o.size};
    const auto call = [&] { return SparseSlice(views[0], views[1], views[2], views[3], views[4]).status(); };
    views[k].data = nullptr;
    EXPECT_THAT(call(), StatusIs(Code::kInvalidArgument, HasSubstr(names[k])));
    views[k].shape = Shape{kMax, 2};
    EXPECT_THAT(call(), StatusIs(Code::kInvalidArgument, HasSubstr(names[k])));
    views[k].shape = Shape(std::vector<int64_t>(Shape::kMaxRank + 1, 1));
    EXPECT_THAT(call(), StatusIs(Code::kResourceExhausted, HasSubstr(names[k])));
  }
}

TEST(SparseSliceErrors, Devices) {
  const Operands o;
  TensorView views[] = {o.indices, o.values, o.shape, o.start, o.size};
  const auto call = [&] { return SparseSlice(views[0], views[1], views[2], views[3], views[4]).status(); };
  views[1].device = Device::Cuda();
  EXPECT_THAT(call(), StatusIs(Code::kInvalidArgument, HasSubstr("values")));
  views[0].device = Device::Cuda();
  EXPECT_THAT(call(), StatusIs(Code::kUnimplemented, HasSubstr("SparseSlice")));
  for (size_t k = 4; k >= 2; --k) {
    views[k].device = Device::Cuda();
    EXPECT_THAT(call(), StatusIs(Code::kInvalidArgument, HasSubstr(k == 2 ? "shape" : k == 3 ? "start" : "size")));
  }
}

}  // namespace
}  // namespace raggrad
