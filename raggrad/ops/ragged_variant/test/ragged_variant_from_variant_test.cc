#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
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
using ::testing::AllOf;
using testing::Array;
using testing::CountingAllocator;
using testing::ExpectEveryAllocationFailureIsReported;
using testing::ForEachSetting;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

// An array of random elements, all of one inner shape.
class RandomVariant {
 public:
  RandomVariant(Generator& random, DType dtype, DType splits_dtype, int levels, const Shape& shape, double mean,
                const std::vector<int64_t>& inner)
      : shape_(shape) {
    for (const int64_t rows : random.RowLengths(shape.NumElements().value(), mean)) {
      Add(RandomRagged(random, dtype, splits_dtype, levels, rows, mean, inner));
    }
  }

  void Add(RandomRagged ragged) {
    raggeds_.push_back(std::move(ragged));
    elements_.push_back(raggeds_.back().view());
  }
  std::optional<RaggedView>& operator[](size_t i) { return elements_[i]; }
  VariantArrayView view() const { return {shape_, elements_}; }

 private:
  Shape shape_;
  std::deque<RandomRagged> raggeds_;
  std::vector<std::optional<RaggedView>> elements_;
};

void ExpectReference(const VariantArrayView& encoded, int64_t input_rank, int64_t output_rank, DType dtype,
                     DType splits_dtype, const Context& ctx) {
  const auto got = RaggedTensorFromVariant(encoded, input_rank, output_rank, dtype, splits_dtype, ctx);
  const auto want = ReferenceFromVariant(encoded, input_rank, output_rank, dtype, splits_dtype);
  ASSERT_TRUE(want.has_value());
  ASSERT_THAT(got, IsOk());
  ASSERT_EQ(got->values().dtype(), dtype);
  ASSERT_NO_FATAL_FAILURE(ExpectSame(got->view(), *want, splits_dtype));
}

TEST(RaggedTensorFromVariant, EveryTypeUnderEverySetting) {
  Generator random(6);
  for (const DType dtype : DTypes(RaggedTypes{})) {
    SCOPED_TRACE(DTypeName(dtype));
    const RandomVariant small(random, dtype, DType::kInt32, 2, Shape{4}, 2, {2});
    const RandomVariant large(random, dtype, DType::kInt64, 1, Shape{500}, 7, {3});
    ForEachSetting([&](const Context& ctx) {
      ExpectReference(small.view(), 2, 3, dtype, DType::kInt32, ctx);
      ExpectReference(large.view(), -1, 2, dtype, DType::kInt64, ctx);
    });
  }
}

TEST(RaggedTensorFromVariant, OddLayouts) {
  Generator random(7);
  for (const DType splits : DTypes(IndexTypes{})) {
    for (const int levels : {0, 1, 3}) {
      SCOPED_TRACE(levels);
      const RandomVariant nothing(random, DType::kString, splits, levels, Shape{0}, 1, {});
      const RandomVariant all_empty(random, DType::kInt8, splits, levels, Shape{20'000}, 0, {2});
      const RandomVariant many_tiny(random, DType::kInt16, splits, levels, Shape{20'000}, 1, {});
      const RandomVariant few_large(random, DType::kInt8, splits, levels, Shape{3}, levels == 3 ? 12 : 200, {2, 3});
      const RandomVariant no_columns(random, DType::kFloat32, splits, levels, Shape{7}, 3, {0});
      ForEachSetting([&](const Context& ctx) {
        ExpectReference(nothing.view(), levels, levels + 1, DType::kString, splits, ctx);
        ExpectReference(all_empty.view(), levels, levels + 1, DType::kInt8, splits, ctx);
        ExpectReference(many_tiny.view(), levels, levels + 1, DType::kInt16, splits, ctx);
        ExpectReference(few_large.view(), levels, levels + 1, DType::kInt8, splits, ctx);
        ExpectReference(no_columns.view(), levels, levels + 1, DType::kFloat32, splits, ctx);
      });
    }
  }
}

TEST(RaggedTensorFromVariant, AnyRankOfArray) {
  Generator random(8);
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{2, 3}, Shape{0, 3}, Shape{2, 0}, Shape{2, 3, 2}, Shape{2, 0, 3},
                             Shape{1, 2, 1, 1, 1, 1, 1, 1, 1, 2}}) {
    for (const int levels : {0, 2}) {
      const RandomVariant variant(random, DType::kFloat32, DType::kInt64, levels, shape, 3, {2});
      const int64_t output_rank = shape.rank() + levels;
      ExpectReference(variant.view(), levels, output_rank, DType::kFloat32, DType::kInt64, {});
      if (output_rank > 0) ExpectReference(variant.view(), -1, output_rank, DType::kFloat32, DType::kInt64, {});
    }
  }
}

TEST(RaggedTensorFromVariant, StackOfDenseValues) {
  Generator random(9);
  for (const Shape& inner : {Shape{}, Shape{3}, Shape{2, 2}, Shape{0, 4}}) {
    const Tensor values = RandomTensor(random, DType::kInt32, inner);
    const std::vector<std::optional<RaggedView>> elements(6, RaggedView{{}, values.view()});
    for (const Shape& shape : {Shape{6}, Shape{2, 3}, Shape{1, 6, 1}}) {
      for (const int64_t input_rank : {-1, 0}) {
        ExpectReference({shape, elements}, input_rank, 0, DType::kInt32, DType::kInt64, {});
      }
    }
    ExpectReference({Shape{0}, {}}, 0, 0, DType::kInt32, DType::kInt64, {});
    ExpectReference({Shape{}, std::span(elements).first(1)}, -1, 0, DType::kInt32, DType::kInt64, {});
  }
}

// Elements of one float each, with the given splits.
template <class I>
struct Stored {
  std::deque<Array<I>> splits;
  std::deque<TensorView> views;
  const Array<float> values{{1.5F}};
  std::vector<std::optional<RaggedView>> elements;

  explicit Stored(std::initializer_list<Array<I>> all) {
    for (const Array<I>& one : all) {
      views.push_back(splits.emplace_back(one));
      elements.push_back(RaggedView{{&views.back(), 1}, values});
    }
  }
  VariantArrayView view() const { return {Shape{static_cast<int64_t>(elements.size())}, elements}; }
  Result<Ragged> Run(int64_t input_rank = 1, int64_t output_rank = 2) const {
    return RaggedTensorFromVariant(view(), input_rank, output_rank, DType::kFloat32, kDTypeOf<I>);
  }
};

TEST(RaggedTensorFromVariant, StoredSplitsAreNotChecked) {
  const Stored<int32_t> wraps({{{0, INT32_MAX}}, {{-9, INT32_MAX}}, {std::vector<int32_t>{4}}, {{0, -5, 3}}});
  ExpectReference(wraps.view(), 1, 2, DType::kFloat32, DType::kInt32, {});
  EXPECT_EQ(ReferenceNumbers(wraps.Run()->view().nested_splits[1]), (std::vector<int64_t>{0, INT32_MAX, -2, -7, 1}));
  const Stored<int64_t> wide({{{7, INT64_MAX}}, {{0, INT64_MAX, INT64_MIN}}});
  ExpectReference(wide.view(), 1, 2, DType::kFloat32, DType::kInt64, {});
}

TEST(RaggedTensorFromVariant, EmptySplits) {
  const Array<int64_t> empty{std::vector<int64_t>{}};
  EXPECT_THAT(Stored<int64_t>({empty}).Run(),
              StatusIs(Code::kInvalidArgument,
                       HasSubstr("[encoded_ragged[0].nested_splits[0]: expected at least 1 element, got 0]")));
  EXPECT_THAT(Stored<int64_t>({{{0, 1}}, empty}).Run(),
              StatusIs(Code::kInvalidArgument, HasSubstr("[encoded_ragged[1].nested_splits[0]")));
  Stored<int64_t> missing_later({empty, {{0, 1}}});
  missing_later.elements[1].reset();
  EXPECT_THAT(missing_later.Run(), StatusIs(Code::kInvalidArgument, HasSubstr("element at index 1 doesn't hold")));
  const Stored<int64_t> scalar({empty});
  EXPECT_THAT(RaggedTensorFromVariant({Shape{}, scalar.elements}, 1, 1, DType::kFloat32, DType::kInt64), IsOk());
}

TEST(RaggedTensorFromVariant, MoreRowsThan32Bits) {
  const float* const nowhere = nullptr;
  const auto run = [&](std::vector<int64_t> rows, DType splits) {
    std::vector<std::optional<RaggedView>> elements;
    for (const int64_t n : rows) elements.push_back(RaggedView{{}, TensorView::Of(nowhere, Shape{n, 0})});
    return RaggedTensorFromVariant({Shape{static_cast<int64_t>(rows.size())}, elements}, 0, 1, DType::kFloat32, splits);
  };
  const Result<Ragged> two = run({INT32_MAX, INT32_MAX}, DType::kInt64);
  ASSERT_THAT(two, IsOk());
  EXPECT_EQ(two->values().shape(), (Shape{4294967294, 0}));
  const Result<Ragged> one = run({(1LL << 32) + 3}, DType::kInt64);
  ASSERT_THAT(one, IsOk());
  EXPECT_EQ(ReferenceNumbers(one->view().nested_splits[0]), (std::vector<int64_t>{0, (1LL << 32) + 3}));
  EXPECT_THAT(run({INT32_MAX}, DType::kInt32), IsOk());
  EXPECT_THAT(run({INT32_MAX, 1}, DType::kInt32),
              StatusIs(Code::kInvalidArgument, HasSubstr("splits do not fit int32 [output_nested_splits[0]")));
  EXPECT_THAT(run({INT64_MAX, 1}, DType::kInt64), StatusIs(Code::kInvalidArgument, HasSubstr("do not fit int64")));
}

TEST(RaggedTensorFromVariant, Attributes) {
  const Stored<int64_t> stored({{{0, 1}}});
  const auto expect = [&](int64_t input_rank, int64_t output_rank, const char* text) {
    EXPECT_THAT(stored.Run(input_rank, output_rank), StatusIs(Code::kInvalidArgument, HasSubstr(text)));
  };
  expect(1, -1, "Value for attr 'output_ragged_rank' of -1 must be at least minimum 0");
  expect(-2, 1, "Value for attr 'input_ragged_rank' of -2 must be at least minimum -1");
  expect(0, 2, "output_ragged_rank: 2, input_ragged_rank: 0, encoded_variant.dims(): 1.");
  expect(INT64_MAX, INT64_MAX, "output_ragged_rank must be equal to input_ragged_rank + encoded_ragged.dims();");
  EXPECT_THAT(RaggedTensorFromVariant({Shape{1, 1}, stored.elements}, -1, 1, DType::kFloat32, DType::kInt64),
              StatusIs(Code::kInvalidArgument,
                       HasSubstr("Inferred input_ragged_rank (output_ragged_rank - encoded_variant.dims()) must be >= "
                                 "0, found output_ragged_rank: 1, encoded_variant.dims(): 2, inferred "
                                 "input_ragged_rank: -1")));
  EXPECT_THAT(RaggedTensorFromVariant({Shape{2}, stored.elements}, 1, 2, DType::kFloat32, DType::kInt64),
              StatusIs(Code::kInvalidArgument, HasSubstr("the shape of encoded_ragged does not fit its elements")));
  EXPECT_THAT(RaggedTensorFromVariant(stored.view(), 1, 2, DType::kInt4, DType::kInt64),
              StatusIs(Code::kInvalidArgument, HasSubstr("values_dtype has dtype int4")));
  EXPECT_THAT(RaggedTensorFromVariant(stored.view(), 1, 2, DType::kFloat32, DType::kUInt32),
              StatusIs(Code::kInvalidArgument, HasSubstr("splits_dtype has dtype uint32")));
}

// Adds faults one by one, from the last check to the first: the newest must be reported.
TEST(RaggedTensorFromVariant, OrderOfChecks) {
  Stored<int64_t> stored({{{0, 1}}, {{0, 1}}, {{0, 1}}});
  const auto expect = [&](const char* text) {
    EXPECT_THAT(stored.Run(), StatusIs(Code::kInvalidArgument, HasSubstr(text)));
  };
  const Array<float> wide({1, 2, 3}, Shape{1, 3});
  const Array<float> other({1, 2}, Shape{1, 2});
  for (auto& element : stored.elements) element->values = wide;
  EXPECT_THAT(stored.Run(), IsOk());
  stored.elements[1]->values = other;
  expect("All flat_values must have compatible shapes.  Shape at index 0: [3].  Shape at index 1: [2].  If you are");
  stored.elements[2]->values = stored.values;
  expect(
      "Rank of values must match for all components; values shape at index 0: [1,3], values shape at index 2: [1] "
      "[encoded_ragged[2].values]");
  const TensorView empty{nullptr, DType::kInt64, Shape{0}, Device::Cpu()};
  stored.elements[2]->nested_splits = {&empty, 1};
  expect("[encoded_ragged[2].nested_splits[0]: expected at least 1 element, got 0]");
  const Array<int64_t> square({0, 1, 2, 3}, Shape{2, 2});
  const TensorView square_view = square;
  stored.elements[2]->nested_splits = {&square_view, 1};
  expect(
      "Ragged splits must have rank 1; encoded scalar element at index 2 has splits Tensor Tensor<type: int64 shape: "
      "[2,2] values: [0 1][2...]...>");
  const Array<int32_t> narrow({0, 1});
  const TensorView narrow_view = narrow;
  stored.elements[2]->nested_splits = {&narrow_view, 1};
  expect("Expected row_splits Tensor dtype: int64, found: int32 [encoded_ragged[2].nested_splits[0]");
  const float number = -0.925008535F;
  stored.elements[2]->values = TensorView::Scalar(number);
  expect(
      "Ragged values must have rank >= 1; encoded scalar element at index 2 has values Tensor: Tensor<type: float "
      "shape: [] values: -0.925008535> [encoded_ragged[2].values: got a scalar]");
  stored.elements[2]->values.dtype = DType::kHalf;
  expect("Expected values Tensor dtype: float, found: half [encoded_ragged[2].values");
  stored.elements[2]->nested_splits = {};
  expect("Encoded input RaggedTensorVariant has ragged_rank=0.  Expected ragged_rank=1. [encoded_ragged[2]]");
  stored.elements[1].reset();
  expect(
      "Input Variant element at index 1 doesn't hold a RaggedTensorVariant: Variant<type:  value: [empty]> "
      "[encoded_ragged[1] is missing]");
}

TEST(RaggedTensorFromVariant, FirstFaultyElementIsReported) {
  Generator random(10);
  RandomVariant variant(random, DType::kFloat32, DType::kInt64, 0, Shape{100'000}, 1, {});
  const auto expect = [&](size_t at, const std::string& text) {
    const std::string place = "[encoded_ragged[" + std::to_string(at) + "]";
    ForEachSetting([&](const Context& ctx) {
      EXPECT_THAT(RaggedTensorFromVariant(variant.view(), 0, 1, DType::kFloat32, DType::kInt64, ctx),
                  StatusIs(Code::kInvalidArgument, AllOf(HasSubstr(text), HasSubstr(place))));
    });
  };
  const double number = 0;
  variant[99'999] = RaggedView{{}, TensorView::Scalar(number)};
  expect(99'999, "Expected values Tensor dtype: float, found: double");
  variant[60'000] = RaggedView{{}, {nullptr, DType::kFloat32, Shape{4}, Device::Cpu()}};
  expect(60'000, "an operand has no data ");
  variant[59'999] = RaggedView{{}, {nullptr, DType::kFloat32, Shape{1LL << 40, 1LL << 40}, Device::Cpu()}};
  expect(59'999, "Shape [1099511627776,1099511627776] results in overflow");
  variant[7] = RaggedView{{}, {&number, DType::kFloat32, Shape{1}, Device::Cuda()}};
  expect(7, "operands are on different devices ");
  variant[5].reset();
  expect(5, "doesn't hold a RaggedTensorVariant");
}

TEST(RaggedTensorFromVariant, OtherDevicesAndHostileOperands) {
  Stored<int64_t> stored({{{0, 1}}});
  TensorView splits = stored.views[0];
  stored.elements[0]->nested_splits = {&splits, 1};
  splits.device = Device::Cuda();
  EXPECT_THAT(stored.Run(), StatusIs(Code::kInvalidArgument, HasSubstr("[encoded_ragged[0].nested_splits[0]")));
  stored.elements[0]->values.device = Device{static_cast<DeviceKind>(10), 0};
  EXPECT_THAT(stored.Run(), StatusIs(Code::kUnimplemented, HasSubstr("there are no kernels for this device")));
  const std::vector<int64_t> too_long(300, 1);
  const Shape invalid{std::span<const int64_t>(too_long)};
  Stored<int64_t> shapeless({{{0, 1}}});
  shapeless.elements[0]->values.shape = invalid;
  EXPECT_THAT(shapeless.Run(), StatusIs(Code::kResourceExhausted, HasSubstr("[encoded_ragged[0].values]")));
  EXPECT_THAT(RaggedTensorFromVariant({invalid, shapeless.elements}, 1, 2, DType::kFloat32, DType::kInt64),
              StatusIs(Code::kResourceExhausted, HasSubstr("encoded_ragged")));
  for (const bool in_splits : {true, false}) {
    Stored<int64_t> unaligned({{{0, 1}}});
    TensorView moved = unaligned.views[0];
    unaligned.elements[0]->nested_splits = {&moved, 1};
    TensorView& view = in_splits ? moved : unaligned.elements[0]->values;
    view.data = static_cast<const char*>(view.data) + 1;
    EXPECT_THAT(unaligned.Run(), StatusIs(Code::kInvalidArgument,
                                          HasSubstr(in_splits ? "not aligned [encoded_ragged[0].nested_splits[0]: "
                                                              : "not aligned [encoded_ragged[0].values: ")));
  }
  // The message shows the scalar, if it can be read.
  const String text{"a\0b", 3}, broken{nullptr, 3};
  for (const String* string : {&text, &broken}) {
    const std::optional<RaggedView> element = RaggedView{{}, TensorView::Scalar(*string)};
    EXPECT_THAT(RaggedTensorFromVariant({Shape{1}, {&element, 1}}, 0, 1, DType::kString, DType::kInt64),
                StatusIs(Code::kInvalidArgument, HasSubstr("Tensor<type: string shape: [] values: ")));
  }
  const std::optional<RaggedView> element = RaggedView{{}, TensorView::Of(&broken, Shape{1})};
  EXPECT_THAT(RaggedTensorFromVariant({Shape{1}, {&element, 1}}, 0, 1, DType::kString, DType::kInt64),
              StatusIs(Code::kInvalidArgument, HasSubstr("a string has no data [encoded_ragged")));
}

TEST(RaggedTensorFromVariant, EveryAllocationFailureIsReported) {
  Generator random(11);
  for (const DType dtype : {DType::kComplex128, DType::kString}) {
    const RandomVariant variant(random, dtype, DType::kInt64, 2, Shape{10, 20}, 3, {3});
    ForEachSetting([&](const Context& setting) {
      ExpectEveryAllocationFailureIsReported(setting, [&](const Context& ctx) {
        return RaggedTensorFromVariant(variant.view(), 2, 4, dtype, DType::kInt64, ctx).status();
      });
    });
  }
}

TEST(RaggedTensorFromVariant, ExtraMemoryIsSixteenBytesPerElement) {
  Generator random(12);
  const RandomVariant variant(random, DType::kFloat64, DType::kInt64, 2, Shape{5000}, 2, {});
  ForEachSetting([&](const Context& setting) {
    CountingAllocator allocator;
    Context ctx = setting;
    ctx.allocator = &allocator;
    const Result<Ragged> got = RaggedTensorFromVariant(variant.view(), 2, 3, DType::kFloat64, DType::kInt64, ctx);
    ASSERT_THAT(got, IsOk());
    EXPECT_EQ(allocator.peak_bytes(), allocator.live_bytes() + 80'000);
  });
}

// FromVariant undoes ToVariant, and so does the gradient of ToVariant for the values.
TEST(RaggedVariant, RoundTrip) {
  Generator random(13);
  for (const DType dtype : {DType::kFloat32, DType::kString, DType::kQUInt16}) {
    const RandomRagged ragged(random, dtype, DType::kInt32, 3, 400, 3, {2});
    ForEachSetting([&](const Context& ctx) {
      const Result<VariantArray> pieces = RaggedTensorToVariant(ragged.splits(), ragged.values(), true, ctx);
      ASSERT_THAT(pieces, IsOk());
      const Result<Ragged> back = RaggedTensorFromVariant(pieces->view(), -1, 3, dtype, DType::kInt32, ctx);
      ASSERT_THAT(back, IsOk());
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(testing::Difference(back->nested_splits()[i].view(), ragged.splits()[i]), "");
      }
      EXPECT_EQ(testing::Difference(back->values().view(), ragged.values()), "");
      const Array<int32_t> shape({static_cast<int32_t>(ragged.values().dim(0)), 2});
      const Result<Tensor> gradient =
          RaggedTensorToVariantGradient(pieces->view(), ragged.splits()[0], shape, dtype, ctx);
      ASSERT_THAT(gradient, IsOk());
      EXPECT_EQ(testing::Difference(gradient->view(), ragged.values()), "");
    });
  }
}

}  // namespace
}  // namespace raggrad
