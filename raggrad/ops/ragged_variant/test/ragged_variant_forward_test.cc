#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "raggrad/ops/ragged_variant/ragged_variant.h"
#include "raggrad/ops/ragged_variant/test/test_ragged.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using namespace ragged_variant;  // NOLINT: its helpers for tests
using testing::Array;
using testing::CountingAllocator;
using testing::ExpectEveryAllocationFailureIsReported;
using testing::ForEachSetting;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

void ExpectReference(std::span<const TensorView> splits, const TensorView& values, bool batched, const Context& ctx) {
  const Result<VariantArray> got = RaggedTensorToVariant(splits, values, batched, ctx);
  const std::optional<ReferenceVariant> want = ReferenceToVariant(splits, values, batched);
  ASSERT_TRUE(want.has_value());
  ASSERT_THAT(got, IsOk());
  ASSERT_EQ(got->shape(), want->shape);
  ASSERT_EQ(got->elements().size(), want->elements.size());
  for (size_t i = 0; i < want->elements.size(); ++i) {
    SCOPED_TRACE("element " + std::to_string(i));
    ASSERT_TRUE(got->elements()[i].has_value());
    ASSERT_EQ(got->elements()[i]->values.dtype, values.dtype);
    ASSERT_NO_FATAL_FAILURE(
        ExpectSame(*got->elements()[i], want->elements[i], splits.empty() ? DType::kInvalid : splits[0].dtype));
  }
}

TEST(RaggedTensorToVariant, EveryTypeUnderEverySetting) {
  Generator random(1);
  for (const DType dtype : DTypes(RaggedTypes{})) {
    SCOPED_TRACE(DTypeName(dtype));
    const RandomRagged small(random, dtype, DType::kInt32, 2, 5, 2, {2});
    const RandomRagged large(random, dtype, DType::kInt64, 1, 3000, 5, {3});
    ForEachSetting([&](const Context& ctx) {
      for (const bool batched : {true, false}) {
        ExpectReference(small.splits(), small.values(), batched, ctx);
        ExpectReference(large.splits(), large.values(), batched, ctx);
      }
    });
  }
}

TEST(RaggedTensorToVariant, OddLayouts) {
  Generator random(2);
  for (const DType splits : DTypes(IndexTypes{})) {
    const RandomRagged nothing(random, DType::kFloat64, splits, 3, 0, 4, {2});
    const RandomRagged all_empty(random, DType::kString, splits, 1, 20'000, 0, {});
    const RandomRagged many_tiny(random, DType::kInt8, splits, 2, 60'000, 1, {});
    const RandomRagged few_large(random, DType::kInt16, splits, 3, 3, 60, {});
    const RandomRagged no_columns(random, DType::kFloat32, splits, 2, 9, 4, {4, 0});
    const RandomRagged deep(random, DType::kInt8, splits, 9, 2, 1.5, {1, 1, 1, 1, 1, 1, 1, 1, 2});
    ForEachSetting([&](const Context& ctx) {
      for (const RandomRagged* ragged : {&nothing, &all_empty, &many_tiny, &few_large, &no_columns, &deep}) {
        for (const bool batched : {true, false}) ExpectReference(ragged->splits(), ragged->values(), batched, ctx);
      }
    });
  }
}

TEST(RaggedTensorToVariant, WithoutSplits) {
  Generator random(3);
  for (const DType dtype : {DType::kFloat32, DType::kString, DType::kQInt8}) {
    for (const Shape& shape : {Shape{5}, Shape{4, 2, 3}, Shape{0, 3}, Shape{3, 0}, Shape{0, 1LL << 40, 1LL << 40}}) {
      const Tensor values = RandomTensor(random, dtype, shape);
      for (const bool batched : {true, false}) ExpectReference({}, values.view(), batched, {});
    }
    ExpectReference({}, RandomTensor(random, dtype, Shape{}).view(), false, {});
  }
  const float* const nowhere = nullptr;
  EXPECT_THAT(RaggedTensorToVariant({}, TensorView::Of(nowhere, Shape{1LL << 50, 0}), true),
              StatusIs(Code::kResourceExhausted, HasSubstr("")));
  EXPECT_THAT(RaggedTensorToVariant({}, TensorView::Scalar(1.0F), true),
              StatusIs(Code::kInvalidArgument, HasSubstr("Can't unbatch rank-0 tensor. [rt_dense_values")));
}

TEST(RaggedTensorToVariant, ElementsLieInTwoAllocations) {
  Generator random(4);
  const RandomRagged ragged(random, DType::kFloat32, DType::kInt64, 3, 100, 3, {2});
  CountingAllocator allocator;
  Context ctx;
  ctx.allocator = &allocator;
  Result<VariantArray> got = RaggedTensorToVariant(ragged.splits(), ragged.values(), true, ctx);
  ASSERT_THAT(got, IsOk());
  EXPECT_EQ(allocator.requests(), 4);  // values, splits, and the views of elements and of splits
  const char* next = got->values().As<char>();
  for (const auto& element : got->elements()) {
    EXPECT_EQ(element->values.data, next);
    next += *element->values.shape.NumElements() * 4;
  }
  EXPECT_EQ(next, got->values().As<char>() + got->values().bytes());
  const VariantArray moved = *std::move(got);  // its views stay valid
  EXPECT_EQ(moved.elements()[0]->values.data, moved.view().elements[0]->values.data);
}

struct Operands {
  Array<int64_t> outer{{0, 2, 3}};
  Array<int64_t> inner{{0, 1, 1, 4}};
  Array<float> values{{1, 2, 3, 4}};

  Result<VariantArray> Run(bool batched = true) const {
    const TensorView splits[] = {outer, inner};
    return RaggedTensorToVariant(splits, values, batched);
  }
};

TEST(RaggedTensorToVariant, ErrorsOfSplits) {
  const auto expect = [](const Operands& o, const char* text) {
    for (const bool batched : {true, false}) {
      EXPECT_THAT(o.Run(batched), StatusIs(Code::kInvalidArgument, HasSubstr(text)));
    }
  };
  Operands o;
  EXPECT_THAT(o.Run(), IsOk());
  o.outer = {{0, 2, 4}};
  expect(o,
         "RaggedTensorToVariant: Invalid ragged splits: last element of ragged splits must be the number of ragged "
         "values(3) but is 4 [rt_nested_splits[0][2]: expected 3, got 4]");
  o.outer = {{0, 5, 3}};
  expect(o,
         "Invalid ragged splits: ragged splits must be monotonically increasing, but ragged_splits[2]=3 is smaller "
         "than row_splits[1]=5 [rt_nested_splits[0][2]: expected at least 5, got 3]");
  o.outer = {{1, 5, 3}};
  expect(o, "first element of ragged splits  must be 0 but is 1 [rt_nested_splits[0][0]: expected 0, got 1]");
  o.outer = {std::vector<int64_t>{}};
  expect(o, "ragged splits must have at least one splits, but is empty [rt_nested_splits[0]: expected at least 1");
  o.outer = {{0, 2, 3}, Shape{1, 3}};
  expect(o, "ragged splits must be rank 1 but is rank 2 [rt_nested_splits[0]: expected rank 1, got shape [1,3]]");
  // The innermost fault is reported, whatever is wrong further out.
  o.inner = {{0, 1, 1, 3}};
  expect(o, "must be the number of ragged values(4) but is 3 [rt_nested_splits[1][3]: expected 4, got 3]");
  o.inner = {{0, 1, 1, 3}, Shape{}};
  expect(o, "ragged splits must be rank 1 but is rank 0 [rt_nested_splits[1]");
  o.values = {{1}, Shape{}};
  expect(o, "Requires flat_values to have rank>=1 when nested_row_splits is not empty, but is 0. [rt_dense_values");
}

TEST(RaggedTensorToVariant, FirstDecreaseIsReported) {
  std::vector<int64_t> splits(200'000);
  for (size_t i = 0; i < splits.size(); ++i) splits[i] = static_cast<int64_t>(i);
  for (const size_t at : {size_t{199'999}, size_t{150'001}, size_t{28'572}, size_t{1}}) {
    splits[at] = -3;
    const TensorView view = TensorView::Vector(std::span<const int64_t>(splits));
    const int8_t* const nowhere = nullptr;
    ForEachSetting([&](const Context& ctx) {
      EXPECT_THAT(
          RaggedTensorToVariant({&view, 1}, TensorView::Of(nowhere, Shape{199'999, 0}), true, ctx),
          StatusIs(Code::kInvalidArgument, HasSubstr("ragged_splits[" + std::to_string(at) + "]=-3 is smaller")));
    });
  }
}

TEST(RaggedTensorToVariant, ErrorsOfOperands) {
  Operands o;
  TensorView splits[] = {o.outer, o.inner};
  const auto expect = [&](const TensorView& values, Code code, const char* text) {
    EXPECT_THAT(RaggedTensorToVariant(splits, values, true), StatusIs(code, HasSubstr(text)));
  };
  TensorView values = o.values;
  values.data = nullptr;
  expect(values, Code::kInvalidArgument, "an operand has no data [rt_dense_values");
  values = o.values;
  values.dtype = DType::kInt4;
  expect(values, Code::kInvalidArgument, "rt_dense_values has dtype int4, which this operator does not have");
  values = o.values;
  for (TensorView& level : splits) level.device = Device::Cuda();
  expect(values, Code::kInvalidArgument, "operands are on different devices [rt_nested_splits[0]");
  values.device = Device{static_cast<DeviceKind>(10), 0};
  for (TensorView& level : splits) level.device = Device::Cpu();
  expect(values, Code::kUnimplemented, "there are no kernels for this device");
  splits[1] = Array<int32_t>({0, 1, 1, 4});
  expect(o.values, Code::kInvalidArgument,
         "[rt_nested_splits[1]: expected that of rt_nested_splits[0] (int64), got int32]");
  splits[0].dtype = DType::kUInt64;
  expect(o.values, Code::kInvalidArgument, "[rt_nested_splits[0]: expected one of int32, int64; got uint64]");
  const std::vector<int64_t> too_long(300, 1);
  splits[0] = o.outer;
  splits[1] = {nullptr, DType::kInt64, Shape{std::span<const int64_t>(too_long)}, Device::Cpu()};
  expect(o.values, Code::kResourceExhausted, "[rt_nested_splits[1]]");
}

TEST(RaggedTensorToVariant, EveryAllocationFailureIsReported) {
  Generator random(5);
  for (const DType dtype : {DType::kComplex128, DType::kString}) {
    const RandomRagged ragged(random, dtype, DType::kInt32, 2, 300, 3, {3});
    ForEachSetting([&](const Context& setting) {
      ExpectEveryAllocationFailureIsReported(setting, [&](const Context& ctx) {
        return RaggedTensorToVariant(ragged.splits(), ragged.values(), true, ctx).status();
      });
    });
  }
}

}  // namespace
}  // namespace raggrad
