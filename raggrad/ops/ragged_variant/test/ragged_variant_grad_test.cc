#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "raggrad/ops/ragged_variant/ragged_variant.h"
#include "raggrad/ops/ragged_variant/test/test_gradient.h"
#include "raggrad/ops/ragged_variant/test/test_ragged.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using namespace ragged_variant;  // NOLINT: its helpers for tests
using testing::CountingAllocator;
using testing::ForEachSetting;
using ::testing::HasSubstr;
using testing::HoldsBits;
using testing::IsOk;
using testing::SharedExecutor;
using testing::StatusIs;

TEST(RaggedTensorToVariantGradient, EveryTypeUnderEverySetting) {
  for (const DType dtype : DTypes(RaggedTypes{})) {
    SCOPED_TRACE(DTypeName(dtype));
    const RandomCase<int32_t> small(dtype, 5, 3, {2, 3});
    const RandomCase<int64_t> large(dtype, 3001, 11, {5});
    ForEachSetting([&](const Context& ctx) {
      ExpectReference(small, dtype, ctx);
      ExpectReference(large, dtype, ctx);
    });
  }
}

TEST(RaggedTensorToVariantGradient, OddLayouts) {
  for (const DType dtype : {DType::kUInt8, DType::kFloat64, DType::kString}) {
    SCOPED_TRACE(DTypeName(dtype));
    const RandomCase<int64_t> nothing(dtype, 0, 3, {2});
    const RandomCase<int32_t> many_tiny(dtype, 40001, 1, {});
    const RandomCase<int32_t> all_empty(dtype, 40001, 0, {});
    const RandomCase<int64_t> few_large(dtype, 3, 70001, {3});
    const RandomCase<int64_t> no_columns(dtype, 9, 9, {4, 0});
    ForEachSetting([&](const Context& ctx) {
      ExpectReference(nothing, dtype, ctx);
      ExpectReference(many_tiny, dtype, ctx);
      ExpectReference(all_empty, dtype, ctx);
      ExpectReference(few_large, dtype, ctx);
      ExpectReference(no_columns, dtype, ctx);
    });
  }
}

// Remembers the largest number of tasks it was given.
class WatchedExecutor final : public Executor {
 public:
  int num_workers() const noexcept override { return 7; }
  void Run(int64_t tasks, TaskRef body) noexcept override {
    most = std::max(most, tasks);
    SharedExecutor(7).Run(tasks, body);
  }
  int64_t most = 0;
};

TEST(RaggedTensorToVariantGradient, OneHugePieceIsSplit) {
  for (const DType dtype : {DType::kInt8, DType::kString}) {
    WatchedExecutor executor;
    Context ctx;
    ctx.executor = &executor;
    Variant variant(dtype);
    variant.Add({1}).Add({1'000'000}).Add({2});
    const int64_t anything = 0;
    const TensorView splits = TensorView::Scalar(anything);
    const Array<int32_t> shape({1'000'003});
    ExpectSame(RaggedTensorToVariantGradient(variant.view(), splits, shape, dtype, ctx),
               ReferenceToVariantGradient(variant.view(), splits, shape, dtype), dtype);
    EXPECT_GE(executor.most, 7);
  }
}

TEST(RaggedTensorToVariantGradient, SmallCallsStayOnTheCallersThread) {
  WatchedExecutor executor;
  Context ctx;
  ctx.executor = &executor;
  for (const DType dtype : {DType::kFloat32, DType::kString}) {
    ExpectReference(RandomCase<int64_t>(dtype, 20, 10, {}), dtype, ctx);
  }
  EXPECT_EQ(executor.most, 0);
}

TEST(RaggedTensorToVariantGradient, AnyRankOfVariant) {
  Variant variant(DType::kInt16);
  for (int i = 0; i < 6; ++i) i == 2 ? variant.AddMissing() : variant.Add({i % 3, 2});
  const Array<int64_t> splits({0, 0, 1, 3, 3, 4, 6});
  const Array<int32_t> shape({6, 2});
  for (const Shape& variant_shape : {Shape{6}, Shape{2, 3}, Shape{3, 1, 2}, Shape{1, 1, 1, 1, 1, 1, 1, 1, 1, 6}}) {
    const VariantArrayView encoded = variant.view(variant_shape);
    ExpectSame(RaggedTensorToVariantGradient(encoded, splits, shape, DType::kInt16),
               ReferenceToVariantGradient(encoded, splits, shape, DType::kInt16), DType::kInt16);
  }
  for (const Shape& variant_shape : {Shape{}, Shape{5}, Shape{7}, Shape{2, 2}, Shape{-2, -3}, Shape{0, 6}}) {
    EXPECT_THAT(RaggedTensorToVariantGradient(variant.view(variant_shape), splits, shape, DType::kInt16),
                StatusIs(Code::kInvalidArgument, HasSubstr("[encoded_ragged_grad: expected as many elements")));
  }
}

TEST(RaggedTensorToVariantGradient, OneElementIsCopiedUnchanged) {
  Variant one(DType::kFloat32);
  one.Add({2, 1, 3});
  const float* const values = one[0]->values.As<float>();
  const Array<float> want(std::vector<float>(values, values + 6), {2, 1, 3});
  for (const Array<int32_t>& shape : {Array<int32_t>({7, 9}), Array<int32_t>(std::vector<int32_t>{})}) {
    for (const Shape& rank : {Shape{}, Shape{1}, Shape{1, 1}}) {
      const Result<Tensor> got = RaggedTensorToVariantGradient(one.view(rank), Array<int64_t>(std::vector<int64_t>{0}),
                                                               shape, want.view().dtype);
      ASSERT_THAT(got, IsOk());
      EXPECT_TRUE(HoldsBits(got->view(), want));
      EXPECT_NE(got->view().data, values) << "the result must be a copy";
    }
  }
}

TEST(RaggedTensorToVariantGradient, OneMissingElement) {
  Variant one(DType::kFloat32);
  one.AddMissing();
  const auto run = [&](const TensorView& splits, const TensorView& shape) {
    return RaggedTensorToVariantGradient(one.view(Shape{}), splits, shape, DType::kFloat32);
  };
  EXPECT_TRUE(HoldsBits(run(Array<int64_t>({0, 1, 2}), Array<int32_t>({5, 2}))->view(),
                        Array<float>(std::vector<float>(2), {1, 2})));
  EXPECT_TRUE(HoldsBits(run(TensorView::Scalar(int64_t{9}), Array<int32_t>({2, 2}))->view(),
                        Array<float>(std::vector<float>(4), {2, 2})));
  EXPECT_TRUE(HoldsBits(run(TensorView::Scalar(int32_t{0}), Array<int32_t>(std::vector<int32_t>{}))->view(),
                        Array<float>({0.0F}, Shape{})));
  EXPECT_THAT(run(Array<int64_t>(std::vector<int64_t>{0}), Array<int32_t>({2, 2})),
              StatusIs(Code::kInvalidArgument, HasSubstr("row_splits: expected at least 2 elements, got 1]")));
  EXPECT_THAT(run(Array<int64_t>({0, 2}), Array<int32_t>(std::vector<int32_t>{})),
              StatusIs(Code::kInvalidArgument, HasSubstr("dense_values_shape: expected at least 1 element, got 0]")));
}

TEST(RaggedTensorToVariantGradient, NumbersInRowSplitsOnlyMatterToMissingElements) {
  Operands o;
  const std::optional<ReferenceOutput> want = ReferenceToVariantGradient(o.variant.view(), o.splits, o.shape, o.dtype);
  for (const std::vector<int64_t>& splits : {std::vector<int64_t>{0}, {0, 1, 9}, {0, 2, 3, 8, 8}}) {
    o.splits = splits;
    ExpectSame(o.Run(), want, o.dtype);
  }
  o.splits = {{-5}, Shape{}};
  ExpectSame(o.Run(), want, o.dtype);
}

TEST(RaggedTensorToVariantGradient, OnlySizesCountAndNestedSplitsAreIgnored) {
  Operands o;
  o.variant = Variant(DType::kFloat32);
  o.variant.Add({1, 2}).Add({}).Add({2, 1, 1, 2, 1, 1, 1, 1, 1});
  const TensorView nonsense{reinterpret_cast<const void*>(8), DType::kInt4, Shape{-4}, Device::Cuda()};
  o.variant[1]->nested_splits = {&nonsense, 1};
  for (const std::vector<int32_t>& shape : {std::vector<int32_t>{7}, {7, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 7}}) {
    o.shape = shape;
    ExpectSame(o.Run(), ReferenceToVariantGradient(o.variant.view(), o.splits, o.shape, o.dtype), o.dtype);
  }
}

TEST(RaggedTensorToVariantGradient, StringsLieInOneAllocation) {
  const RandomCase<int64_t> c(DType::kString, 500, 40, {2});
  ForEachSetting([&](const Context& ctx) {
    const Result<Tensor> got = RaggedTensorToVariantGradient(c.variant.view(), Array<int64_t>(c.splits),
                                                             Array<int32_t>(c.shape), DType::kString, ctx);
    ASSERT_THAT(got, IsOk());
    const size_t count = static_cast<size_t>(got->shape().NumElements().value());
    const char* expected = got->As<char>() + count * sizeof(String);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(got->As<String>()[i].data, expected) << "string " << i;
      expected += got->As<String>()[i].size;
    }
    EXPECT_EQ(expected, got->As<char>() + got->bytes());
  });
}

TEST(RaggedTensorToVariantGradient, MissingStringsAreEmpty) {
  Variant variant(DType::kString);
  variant.Add({2}).AddMissing();
  const auto run = [&](const std::vector<int64_t>& splits, const std::vector<int32_t>& shape) {
    ExpectSame(
        RaggedTensorToVariantGradient(variant.view(), Array<int64_t>(splits), Array<int32_t>(shape), DType::kString),
        ReferenceToVariantGradient(variant.view(), Array<int64_t>(splits), Array<int32_t>(shape), DType::kString),
        DType::kString);
  };
  run({0, 2, 3}, {3});
  run({0, 2, 2}, {2});
  variant = Variant(DType::kString);
  variant.AddMissing();
  run({0, 2}, {2});
}

TEST(RaggedTensorToVariantGradient, ExtraMemoryIsSixteenBytesPerElement) {
  const RandomCase<int64_t> c(DType::kInt64, 5000, 3, {});
  ForEachSetting([&](const Context& setting) {
    CountingAllocator allocator;
    Context ctx = setting;
    ctx.allocator = &allocator;
    const Result<Tensor> got = RaggedTensorToVariantGradient(c.variant.view(), Array<int64_t>(c.splits),
                                                             Array<int32_t>(c.shape), DType::kInt64, ctx);
    ASSERT_THAT(got, IsOk());
    EXPECT_EQ(allocator.peak_bytes(), got->bytes() + 80000);
  });
}

}  // namespace
}  // namespace raggrad
