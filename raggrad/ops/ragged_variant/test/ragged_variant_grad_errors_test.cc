// Errors of RaggedTensorToVariantGradient: texts, order, positions, and lack of memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "raggrad/ops/ragged_variant/ragged_variant.h"
#include "raggrad/ops/ragged_variant/test/test_gradient.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using namespace ragged_variant;  // NOLINT: its helpers for tests
using ::testing::AllOf;
using testing::ExpectEveryAllocationFailureIsReported;
using testing::ForEachSetting;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

TEST(RaggedTensorToVariantGradient, ElementsMustFillTheShape) {
  Operands o;
  for (const std::vector<int32_t>& shape : {std::vector<int32_t>{5}, {2}, {}, {3, 0}, {2147483647, 2147483647}}) {
    o.shape = shape;
    EXPECT_THAT(o.Run(), StatusIs(Code::kInvalidArgument, HasSubstr(" values in all, got 3]")));
  }
  o.variant = Variant(DType::kFloat32);
  o.shape = std::vector<int32_t>{3};
  EXPECT_THAT(o.Run(), StatusIs(Code::kInvalidArgument, HasSubstr("expected 3 values in all, got 0]")));
  o.variant.Add({0}).Add({2}).Add({0});
  o.shape = {{2}, Shape{1}};
  EXPECT_THAT(o.Run(), IsOk());
}

TEST(RaggedTensorToVariantGradient, MissingElementsWithoutASize) {
  Operands o;
  o.variant = Variant(DType::kFloat32);
  o.variant.AddMissing().Add({2});
  const auto expect = [&](std::vector<int64_t> splits, std::vector<int32_t> shape, const char* text) {
    o.splits = std::move(splits);
    o.shape = std::move(shape);
    EXPECT_THAT(o.Run(), StatusIs(Code::kInvalidArgument, HasSubstr(text)));
  };
  expect({0, 1, 3}, {5}, "expected 5 values in all, got 3]");
  expect({0, 70, 90}, {3}, "expected 3 values in all, got 72]");
  expect({0}, {3}, "[encoded_ragged_grad[0] is missing; row_splits: expected at least 2 elements, got 1]");
  expect({0, 2, 4}, {}, "dense_values_shape: expected at least 1 element, got 0]");
  expect({0, int64_t{1} << 32, 5'000'000'000}, {2}, "expected 2 values in all, got 4294967298]");
  expect({0, int64_t{1} << 62, int64_t{1} << 62}, {0, 2}, "Shape [4611686018427387904,2] results in overflow");
  expect({0, INT64_MAX, INT64_MAX}, {2}, "expected 2 values in all, got more than 2^63 - 1]");
  o.splits = {{0}, Shape{}};
  EXPECT_THAT(o.Run(), StatusIs(Code::kInvalidArgument, HasSubstr("at least 2 elements, got a scalar]")));
}

TEST(RaggedTensorToVariantGradient, DenseValuesShape) {
  Operands o;
  const auto expect = [&](const Array<int32_t>& shape, const char* text) {
    o.shape = shape;
    EXPECT_THAT(o.Run(), StatusIs(Code::kInvalidArgument, HasSubstr(text)));
  };
  expect({{3}, Shape{}}, "[dense_values_shape: expected rank 1, got shape []]");
  expect({{3}, Shape{1, 1}}, "[dense_values_shape: expected rank 1, got shape [1,1]]");
  expect({{-1}, Shape{1}}, "RaggedTensorToVariantGradient: Dimension -1 must be >= 0 [dense_values_shape[0]");
  expect({{1, -7, -8}}, "Dimension -7 must be >= 0 [dense_values_shape[1]");
  expect({{INT32_MAX, INT32_MAX, INT32_MAX, -1}},
         "Shape [2147483647,2147483647,2147483647,-1] would have more than 2**63 - 1 elements");
  expect({std::vector<int32_t>(255, 1)}, "Too many dimensions [dense_values_shape: expected at most 254 elements");
  o.shape = {std::vector<int32_t>(254, 1)};
  o.shape.values[200] = 3;
  EXPECT_THAT(o.Run(), IsOk());
}

TEST(RaggedTensorToVariantGradient, RowSplits) {
  Operands o;
  const auto expect = [&](const Array<int64_t>& splits, const char* text) {
    o.splits = splits;
    EXPECT_THAT(o.Run(), StatusIs(Code::kInvalidArgument, HasSubstr(text)));
  };
  expect(
      {{5, 6, 8}},
      "Invalid ragged splits: first element of ragged splits  must be 0 but is 5 [row_splits[0]: expected 0, got 5]");
  expect({{0, 6, 2}},
         "Invalid ragged splits: ragged splits must be monotonically increasing, but ragged_splits[2]=2 is smaller "
         "than row_splits[1]=6 [row_splits[2]: expected at least 6, got 2]");
  expect({std::vector<int64_t>{}},
         "Invalid ragged splits: ragged splits must have at least one splits, but is empty [row_splits: expected at "
         "least 1 element, got 0]");
  expect({{0, 2, 3}, Shape{1, 3}},
         "Invalid ragged splits: ragged splits must be rank 1 but is rank 2 [row_splits: expected rank 1, got shape "
         "[1,3]]");
}

TEST(RaggedTensorToVariantGradient, FirstDecreaseIsReported) {
  std::vector<int32_t> splits(200'000);
  for (size_t i = 0; i < splits.size(); ++i) splits[i] = static_cast<int32_t>(i);
  Operands o;
  for (const size_t at : {size_t{199'999}, size_t{150'001}, size_t{28'572}, size_t{28'571}, size_t{1}}) {
    splits[at] = -3;
    const std::string text = "ragged_splits[" + std::to_string(at) + "]=-3 is smaller";
    ForEachSetting([&](const Context& ctx) {
      const TensorView view = TensorView::Vector(std::span<const int32_t>(splits));
      EXPECT_THAT(RaggedTensorToVariantGradient(o.variant.view(), view, o.shape, o.dtype, ctx),
                  StatusIs(Code::kInvalidArgument, HasSubstr(text)));
    });
  }
}

TEST(RaggedTensorToVariantGradient, FirstFaultyElementIsReported) {
  RandomCase<int64_t> c(DType::kFloat32, 100'000, 1, {});
  const auto expect = [&](size_t at, const std::string& text) {
    const std::string place = "[encoded_ragged_grad[" + std::to_string(at) + "]";
    ForEachSetting([&](const Context& ctx) {
      EXPECT_THAT(RaggedTensorToVariantGradient(c.variant.view(), Array<int64_t>(c.splits), Array<int32_t>(c.shape),
                                                DType::kFloat32, ctx),
                  StatusIs(Code::kInvalidArgument, AllOf(HasSubstr(text), HasSubstr(place))));
    });
  };
  const double number = 0;
  c.variant[99'999] = RaggedView{{}, TensorView::Scalar(number)};
  expect(99'999, "Type mismatch: actual double vs. expect float ");
  c.variant[60'000] = RaggedView{{}, {nullptr, DType::kFloat32, Shape{4}, Device::Cpu()}};
  expect(60'000, "an operand has no data ");
  c.variant[59'999] = RaggedView{{}, {nullptr, DType::kFloat32, Shape{1LL << 40, 1LL << 40}, Device::Cpu()}};
  expect(59'999, "Shape [1099511627776,1099511627776] results in overflow");
  c.variant[7] = RaggedView{{}, {&number, DType::kFloat32, Shape{1}, Device::Cuda()}};
  expect(7, "operands are on different devices ");
}

TEST(RaggedTensorToVariantGradient, TypeMismatch) {
  Operands o;
  o.dtype = DType::kFloat64;
  EXPECT_THAT(o.Run(),
              StatusIs(Code::kInvalidArgument,
                       HasSubstr("RaggedTensorToVariantGradient: Type mismatch: actual float vs. expect double "
                                 "[encoded_ragged_grad[0]: expected values of dtype float64, got float32]")));
  o.dtype = DType::kString;
  EXPECT_THAT(o.Run(), StatusIs(Code::kInvalidArgument, HasSubstr("actual float vs. expect string")));
  o.variant = Variant(DType::kQInt8);
  o.variant.Add({3});
  o.dtype = DType::kInt8;
  EXPECT_THAT(o.Run(), StatusIs(Code::kInvalidArgument, HasSubstr("actual qint8 vs. expect int8")));
}

// Adds faults one by one, from the last check to the first: the newest must be reported.
TEST(RaggedTensorToVariantGradient, OrderOfChecks) {
  Operands o;
  const auto expect = [&](const char* text) {
    EXPECT_THAT(o.Run(), StatusIs(Code::kInvalidArgument, HasSubstr(text)));
  };
  o.shape = {{4}};
  expect("do not fill");
  o.variant[1]->values.dtype = DType::kInt32;
  expect("Type mismatch: actual int32 vs. expect float");
  o.variant[0].reset();
  o.splits = std::vector<int64_t>{0};
  expect("row_splits is too short");
  o.splits = {{1, 0}};
  expect("must be 0 but is 1");
  o.splits = {{1, 0}, Shape{2, 1}};
  expect("must be rank 1 but is rank 2");
  o.shape = {{-2}};
  expect("Dimension -2 must be >= 0");
  o.shape = {{-2}, Shape{}};
  expect("dense_values_shape must be a vector");
  o.dtype = DType::kInt4;
  expect("values_dtype has dtype int4, which this operator does not have");
  TensorView shape = o.shape;
  shape.dtype = DType::kInt64;
  TensorView splits = o.splits;
  EXPECT_THAT(RaggedTensorToVariantGradient(o.variant.view(), splits, shape, o.dtype),
              StatusIs(Code::kInvalidArgument, HasSubstr("[dense_values_shape: expected one of int32; got int64]")));
  splits.dtype = DType::kUInt32;
  EXPECT_THAT(RaggedTensorToVariantGradient(o.variant.view(), splits, shape, o.dtype),
              StatusIs(Code::kInvalidArgument, HasSubstr("[row_splits: expected one of int32, int64; got uint32]")));
}

TEST(RaggedTensorToVariantGradient, Devices) {
  Operands o;
  TensorView splits = o.splits;
  TensorView shape = o.shape;
  shape.device = Device::Cuda();
  EXPECT_THAT(RaggedTensorToVariantGradient(o.variant.view(), splits, shape, o.dtype),
              StatusIs(Code::kInvalidArgument, HasSubstr("dense_values_shape must be in host memory")));
  splits.device = Device{static_cast<DeviceKind>(10), 0};
  EXPECT_THAT(RaggedTensorToVariantGradient(o.variant.view(), splits, o.shape, o.dtype),
              StatusIs(Code::kUnimplemented, HasSubstr("there are no kernels for this device")));
  for (size_t i = 0; i < o.variant.size(); ++i) {
    if (o.variant[i]) o.variant[i]->values.device = Device{static_cast<DeviceKind>(10), 0};
  }
  EXPECT_THAT(RaggedTensorToVariantGradient(o.variant.view(), o.splits, o.shape, o.dtype),
              StatusIs(Code::kUnimplemented, HasSubstr("there are no kernels for this device")));
}

TEST(RaggedTensorToVariantGradient, InvalidShapes) {
  const std::vector<int64_t> too_long(300, 1);
  const Shape invalid{std::span<const int64_t>(too_long)};
  ASSERT_FALSE(invalid.valid());
  Operands o;
  const TensorView broken{o.splits.values.data(), DType::kInt64, invalid, Device::Cpu()};
  EXPECT_THAT(RaggedTensorToVariantGradient(o.variant.view(), broken, o.shape, o.dtype),
              StatusIs(Code::kResourceExhausted, HasSubstr("row_splits")));
  EXPECT_THAT(RaggedTensorToVariantGradient(o.variant.view(invalid), o.splits, o.shape, o.dtype),
              StatusIs(Code::kResourceExhausted, HasSubstr("encoded_ragged_grad")));
  o.variant[1]->values.shape = invalid;
  EXPECT_THAT(o.Run(), StatusIs(Code::kResourceExhausted, HasSubstr("encoded_ragged_grad[1]")));
}

TEST(RaggedTensorToVariantGradient, AnElementThatIsNotAligned) {
  Operands o;
  TensorView& values = o.variant[1]->values;
  values.data = values.As<char>() + 1;
  EXPECT_THAT(o.Run(), StatusIs(Code::kInvalidArgument, HasSubstr("not aligned [encoded_ragged_grad[1]: ")));
}

TEST(RaggedTensorToVariantGradient, HostileStrings) {
  const auto run = [&](std::vector<String> strings) {
    const std::optional<RaggedView> element = RaggedView{{}, TensorView::Vector(std::span<const String>(strings))};
    return RaggedTensorToVariantGradient({Shape{}, {&element, 1}}, TensorView::Scalar(0), Array<int32_t>({1}),
                                         DType::kString);
  };
  EXPECT_THAT(run({{nullptr, 0}, {"a", 1}}), IsOk());
  EXPECT_THAT(run({{"a", 1}, {nullptr, 1}}), StatusIs(Code::kInvalidArgument, HasSubstr("at place 1 of the result")));
  EXPECT_THAT(run({{"a", SIZE_MAX}, {"b", SIZE_MAX / 2}}), StatusIs(Code::kResourceExhausted, HasSubstr("OOM")));
  EXPECT_THAT(run({{"a", SIZE_MAX - 16}}), StatusIs(Code::kResourceExhausted, HasSubstr("OOM")));
}

TEST(RaggedTensorToVariantGradient, EveryAllocationFailureIsReported) {
  for (const DType dtype : {DType::kComplex128, DType::kString}) {
    const RandomCase<int32_t> c(dtype, 2000, 9, {3});
    ForEachSetting([&](const Context& setting) {
      ExpectEveryAllocationFailureIsReported(setting, [&](const Context& ctx) {
        return RaggedTensorToVariantGradient(c.variant.view(), Array<int32_t>(c.splits), Array<int32_t>(c.shape), dtype,
                                             ctx)
            .status();
      });
    });
  }
}

TEST(RaggedTensorToVariantGradient, TooLargeForTheMemory) {
  Variant one(DType::kFloat64);
  one.AddMissing();
  EXPECT_THAT(RaggedTensorToVariantGradient(one.view(), Array<int64_t>({0, int64_t{1} << 59}), Array<int32_t>({1}),
                                            DType::kFloat64),
              StatusIs(Code::kResourceExhausted, HasSubstr("OOM")));
}

}  // namespace
}  // namespace raggrad
