#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "raggrad/ops/ragged_variant/ragged_variant.h"
#include "raggrad/ops/ragged_variant/test/reference.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/counting_allocator.h"
#include "raggrad/testing/settings.h"
#include "raggrad/testing/status_matchers.h"

namespace raggrad {
namespace {

using ragged_variant::ReferenceOutput;
using ragged_variant::ReferenceToVariantGradient;
using ::testing::AllOf;
using testing::Array;
using testing::CountingAllocator;
using testing::ExpectEveryAllocationFailureIsReported;
using testing::ForEachSetting;
using ::testing::HasSubstr;
using testing::HoldsBits;
using testing::IsOk;
using testing::Pool;
using testing::StatusIs;

// Owns elements with random bits (random short texts, for strings).
class Variant {
 public:
  explicit Variant(DType dtype) : dtype_(dtype) {}

  Variant& Add(const Shape& shape) {
    const size_t count = static_cast<size_t>(shape.NumElements().value());
    std::vector<char>& bytes = storage_.emplace_back(count * DTypeSize(dtype_));
    for (char& byte : bytes) byte = static_cast<char>(random_());
    for (size_t i = 0; dtype_ == DType::kString && i < count; ++i) {
      const std::string& text = texts_.emplace_back(random_() % 30, static_cast<char>('a' + random_() % 26));
      reinterpret_cast<String*>(bytes.data())[i] = {text.data(), text.size()};
    }
    elements_.push_back(RaggedView{{}, {bytes.data(), dtype_, shape, Device::kCpu}});
    return *this;
  }
  Variant& AddMissing() {
    elements_.emplace_back();
    return *this;
  }

  std::optional<RaggedView>& operator[](size_t i) { return elements_[i]; }
  size_t size() const { return elements_.size(); }
  VariantArrayView view() const { return view(Shape{static_cast<int64_t>(elements_.size())}); }
  VariantArrayView view(const Shape& shape) const { return {shape, elements_}; }

 private:
  DType dtype_;
  std::minstd_rand random_{7};
  std::deque<std::vector<char>> storage_;
  std::deque<std::string> texts_;
  std::vector<std::optional<RaggedView>> elements_;
};

void ExpectSame(const Result<Tensor>& got, const std::optional<ReferenceOutput>& want, DType dtype) {
  ASSERT_EQ(got.ok(), want.has_value()) << got.status().message();
  if (!want) {
    EXPECT_EQ(got.status().code(), Code::kInvalidArgument) << got.status().message();
    return;
  }
  EXPECT_EQ(got->dtype(), dtype);
  ASSERT_EQ(got->shape(), want->shape);
  const size_t size = DTypeSize(dtype);
  for (size_t i = 0; i < want->values.size(); ++i) {
    const String* const text = dtype == DType::kString ? got->As<String>() + i : nullptr;
    const std::string_view value =
        text ? std::string_view(text->data, text->size) : std::string_view(got->As<char>() + i * size, size);
    ASSERT_EQ(value, want->values[i]) << "value " << i;
  }
}

// Elements of random lengths, every fourth missing, and the operands that go with them.
template <class I>
struct RandomCase {
  Variant variant;
  std::vector<I> splits{0};
  std::vector<int32_t> shape;

  RandomCase(DType dtype, int elements, int max_rows, const std::vector<int64_t>& inner) : variant(dtype) {
    std::minstd_rand random(static_cast<unsigned>(elements + max_rows));
    for (int i = 0; i < elements; ++i) {
      const int64_t rows = static_cast<int64_t>(random() % static_cast<unsigned>(max_rows + 1));
      if (random() % 4 == 0) {
        variant.AddMissing();
      } else {
        variant.Add(Shape::WithDim0(rows, inner));
      }
      splits.push_back(static_cast<I>(splits.back() + static_cast<I>(rows)));
    }
    shape.push_back(static_cast<int32_t>(splits.back()));
    shape.insert(shape.end(), inner.begin(), inner.end());
  }
};

template <class I>
void ExpectReference(const RandomCase<I>& c, DType dtype, const Context& ctx) {
  const TensorView splits = TensorView::Vector(std::span<const I>(c.splits));
  const TensorView shape = TensorView::Vector(std::span<const int32_t>(c.shape));
  ExpectSame(RaggedTensorToVariantGradient(c.variant.view(), splits, shape, dtype, ctx),
             ReferenceToVariantGradient(c.variant.view(), splits, shape, dtype), dtype);
}

template <class... Ts>
std::vector<DType> DTypes(TypeList<Ts...>) {
  return {kDTypeOf<Ts>...};
}

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

// Notes the most tasks it was given.
class WatchedExecutor final : public Executor {
 public:
  int num_workers() const noexcept override { return 7; }
  void Run(int64_t tasks, TaskRef body) noexcept override {
    most = std::max(most, tasks);
    Pool(7).Run(tasks, body);
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
    const TensorView splits = TensorView::Scalar(int64_t{0});
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

// The operands most tests below change in one place: two elements of 2 and 1 floats.
struct Operands {
  Variant variant = [] {
    Variant v(DType::kFloat32);
    v.Add({2}).Add({1});
    return v;
  }();
  Array<int64_t> splits{{0, 2, 3}};
  Array<int32_t> shape{std::vector<int32_t>{3}};
  DType dtype = DType::kFloat32;

  Result<Tensor> Run(const Context& ctx = {}) const {
    return RaggedTensorToVariantGradient(variant.view(), splits, shape, dtype, ctx);
  }
};

TEST(RaggedTensorToVariantGradient, OneElementIsTheResultAsItIs) {
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

TEST(RaggedTensorToVariantGradient, OnlySizesCountAndNestedSplitsAreNotLookedAt) {
  Operands o;
  o.variant = Variant(DType::kFloat32);
  o.variant.Add({1, 2}).Add({}).Add({2, 1, 1, 2, 1, 1, 1, 1, 1});
  const TensorView nonsense{reinterpret_cast<const void*>(8), DType::kInt4, Shape{-4}, Device::kCuda};
  o.variant[1]->nested_splits = {&nonsense, 1};
  for (const std::vector<int32_t>& shape : {std::vector<int32_t>{7}, {7, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 7}}) {
    o.shape = shape;
    ExpectSame(o.Run(), ReferenceToVariantGradient(o.variant.view(), o.splits, o.shape, o.dtype), o.dtype);
  }
}

TEST(RaggedTensorToVariantGradient, ElementsMustFillTheShape) {  // rows 16 to 19
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

TEST(RaggedTensorToVariantGradient, MissingElementsThatCannotBePlaced) {  // rows 20 to 23, 25, 26
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

TEST(RaggedTensorToVariantGradient, DenseValuesShape) {  // row 27, and TensorFlow's own errors
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
  c.variant[60'000] = RaggedView{{}, {nullptr, DType::kFloat32, Shape{4}, Device::kCpu}};
  expect(60'000, "an operand has no data ");
  c.variant[59'999] = RaggedView{{}, {nullptr, DType::kFloat32, Shape{1LL << 40, 1LL << 40}, Device::kCpu}};
  expect(59'999, "Shape [1099511627776,1099511627776] results in overflow");
  c.variant[7] = RaggedView{{}, {&number, DType::kFloat32, Shape{1}, Device::kCuda}};
  expect(7, "operands are on different devices ");
}

TEST(RaggedTensorToVariantGradient, TypeMismatch) {  // row 28
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

// Each fault is put before those that must not be reported any more.
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
  shape.device = Device::kCuda;
  EXPECT_THAT(RaggedTensorToVariantGradient(o.variant.view(), splits, shape, o.dtype),
              StatusIs(Code::kInvalidArgument, HasSubstr("dense_values_shape must be in host memory")));
  splits.device = static_cast<Device>(10);
  EXPECT_THAT(RaggedTensorToVariantGradient(o.variant.view(), splits, o.shape, o.dtype),
              StatusIs(Code::kUnimplemented, HasSubstr("there are no kernels for this device")));
  for (size_t i = 0; i < o.variant.size(); ++i) {
    if (o.variant[i]) o.variant[i]->values.device = static_cast<Device>(10);
  }
  EXPECT_THAT(RaggedTensorToVariantGradient(o.variant.view(), o.splits, o.shape, o.dtype),
              StatusIs(Code::kUnimplemented, HasSubstr("there are no kernels for this device")));
}

TEST(RaggedTensorToVariantGradient, ShapesThatCouldNotBeMade) {
  const std::vector<int64_t> too_long(300, 1);
  const Shape invalid{std::span<const int64_t>(too_long)};
  ASSERT_FALSE(invalid.valid());
  Operands o;
  const TensorView broken{o.splits.values.data(), DType::kInt64, invalid, Device::kCpu};
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

TEST(RaggedTensorToVariantGradient, MissingStringsAreEmpty) {  // row 29
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
