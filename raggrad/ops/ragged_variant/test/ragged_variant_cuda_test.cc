// The ragged operators with values on a GPU. Bits, shapes and errors must be the CPU's.
#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "raggrad/ops/ragged_variant/ragged_variant.h"
#include "raggrad/ops/ragged_variant/test/test_ragged.h"
#include "raggrad/testing/always_the_same.h"
#include "raggrad/testing/array.h"
#include "raggrad/testing/on_device.h"

namespace raggrad::ragged_variant {
namespace {

using testing::Array;
using testing::ExpectSameStatus;
using testing::GpuTest;
using testing::OnDevice;

using NumericTypes = JoinLists<NumberTypes, TypeList<bool, QInt8, QUInt8, QInt16, QUInt16, QInt32>>;

// Elements in host memory, and the same with their values in device memory.
class Variant {
 public:
  Variant(uint64_t seed, DType dtype) : random_(seed), dtype_(dtype) {}

  Variant& Add(const Shape& shape) { return Add(RandomTensor(random_, dtype_, shape), {}); }
  Variant& AddMissing() {
    host_.emplace_back();
    device_.emplace_back();
    return *this;
  }
  // With one level of splits, which stay in host memory.
  Variant& AddRagged(DType splits_dtype, const std::vector<int64_t>& splits, const Shape& shape) {
    splits_.push_back(SplitsTensor(splits_dtype, splits));
    split_views_.push_back(splits_.back().view());
    return Add(RandomTensor(random_, dtype_, shape), {&split_views_.back(), 1});
  }
  // Elements that begin `skipped` values behind an aligned address.
  Variant& AddUnaligned(const Shape& shape, int64_t skipped) {
    Add(Shape{*shape.NumElements() + skipped});
    for (auto* elements : {&host_, &device_}) {
      TensorView& values = elements->back()->values;
      values.data = values.As<char>() + static_cast<size_t>(skipped) * DTypeSize(dtype_);
      values.shape = shape;
    }
    return *this;
  }

  Generator& random() { return random_; }
  VariantArrayView host(const Shape& shape) const { return {shape, host_}; }
  VariantArrayView device(const Shape& shape) const { return {shape, device_}; }
  VariantArrayView host() const { return host(Shape{std::ssize(host_)}); }
  VariantArrayView device() const { return device(Shape{std::ssize(device_)}); }

 private:
  Variant& Add(Tensor values, std::span<const TensorView> splits) {
    values_.push_back(std::move(values));
    copies_.emplace_back(values_.back().view());
    host_.emplace_back(RaggedView{splits, values_.back().view()});
    device_.emplace_back(RaggedView{splits, copies_.back().view()});
    return *this;
  }

  Generator random_;
  DType dtype_;
  std::deque<Tensor> values_;
  std::deque<OnDevice> copies_;
  std::deque<Tensor> splits_;
  std::deque<TensorView> split_views_;
  std::vector<std::optional<RaggedView>> host_;
  std::vector<std::optional<RaggedView>> device_;
};

// Splits are in host memory, values on the device.
void ExpectSameRagged(const RaggedView& got, const RaggedView& want) {
  ASSERT_EQ(got.nested_splits.size(), want.nested_splits.size());
  for (size_t i = 0; i < want.nested_splits.size(); ++i) {
    EXPECT_EQ(testing::Difference(got.nested_splits[i], want.nested_splits[i]), "");
  }
  testing::ExpectSame(got.values, want.values);
}

using RaggedGradientCudaTest = GpuTest;

struct GradientOperands {
  Variant variant;
  std::vector<int64_t> splits{0};
  std::vector<int32_t> shape;

  // Every fourth element is missing.
  GradientOperands(DType dtype, int64_t elements, int64_t max_rows, const std::vector<int64_t>& inner)
      : variant(static_cast<uint64_t>(elements + max_rows), dtype) {
    for (int64_t i = 0; i < elements; ++i) {
      const int64_t rows = variant.random().Below(max_rows + 1);
      if (variant.random().Below(4) == 0) {
        variant.AddMissing();
      } else {
        variant.AddUnaligned(Shape::WithDim0(rows, inner), variant.random().Below(4));
      }
      splits.push_back(splits.back() + rows);
    }
    shape.push_back(static_cast<int32_t>(splits.back()));
    shape.insert(shape.end(), inner.begin(), inner.end());
  }

  void ExpectCpusAnswer(DType dtype) const {
    const TensorView shape_view = TensorView::Vector<int32_t>(shape);
    for (const DType splits_dtype : {DType::kInt32, DType::kInt64}) {
      const Tensor host_splits = SplitsTensor(splits_dtype, splits);
      const OnDevice device_splits(host_splits.view());
      const auto want = RaggedTensorToVariantGradient(variant.host(), host_splits.view(), shape_view, dtype);
      for (const TensorView& row_splits : {host_splits.view(), device_splits.view()}) {
        testing::ExpectSame(RaggedTensorToVariantGradient(variant.device(), row_splits, shape_view, dtype), want);
      }
    }
  }
};

TEST_F(RaggedGradientCudaTest, JoinsPiecesOfEveryTypeAndAlignment) {
  for (const DType dtype : DTypes(NumericTypes{})) {
    SCOPED_TRACE(DTypeName(dtype));
    GradientOperands(dtype, 2, 3, {}).ExpectCpusAnswer(dtype);
    GradientOperands(dtype, 100, 1, {}).ExpectCpusAnswer(dtype);
    GradientOperands(dtype, 40, 9, {3}).ExpectCpusAnswer(dtype);
    GradientOperands(dtype, 33, 50, {2, 5}).ExpectCpusAnswer(dtype);
    GradientOperands(dtype, 7, 5, {0}).ExpectCpusAnswer(dtype);
  }
}

TEST_F(RaggedGradientCudaTest, ManyPiecesAndHugeOnes) {
  GradientOperands(DType::kFloat32, 3'000, 39, {64}).ExpectCpusAnswer(DType::kFloat32);
  GradientOperands(DType::kUInt8, 10'000, 2, {}).ExpectCpusAnswer(DType::kUInt8);
  GradientOperands(DType::kHalf, 3, 300'000, {3}).ExpectCpusAnswer(DType::kHalf);
  GradientOperands(DType::kFloat32, 5'000, 0, {4}).ExpectCpusAnswer(DType::kFloat32);
}

TEST_F(RaggedGradientCudaTest, OneElement) {
  const Array<int64_t> splits({0, 3});
  const Array<int32_t> shape({3, 2});
  Variant present(1, DType::kFloat32), missing(1, DType::kFloat32);
  present.Add(Shape{5, 2});
  missing.AddMissing();
  const OnDevice device_splits(splits.view());
  for (const Variant* variant : {&present, &missing}) {
    for (const Shape& rank : {Shape{1}, Shape{}}) {
      testing::ExpectSame(RaggedTensorToVariantGradient(variant->device(rank), device_splits, shape, DType::kFloat32),
                          RaggedTensorToVariantGradient(variant->host(rank), splits, shape, DType::kFloat32));
    }
  }
}

TEST_F(RaggedGradientCudaTest, ErrorsAreThoseOfTheCpu) {
  Variant variant(2, DType::kFloat32);
  variant.Add(Shape{2, 2}).AddMissing().Add(Shape{1, 2});
  const Array<int32_t> shape({6, 2});
  const auto expect = [&](const std::vector<int64_t>& splits, const TensorView& dense_shape) {
    const Tensor host_splits = SplitsTensor(DType::kInt64, splits);
    const OnDevice device_splits(host_splits.view());
    ExpectSameStatus(RaggedTensorToVariantGradient(variant.device(), device_splits, dense_shape, DType::kFloat32),
                     RaggedTensorToVariantGradient(variant.host(), host_splits.view(), dense_shape, DType::kFloat32));
  };
  expect({0, 2, 5, 6}, shape);
  expect({1, 2, 5, 6}, shape);
  expect({0, 2, 1, 6}, shape);
  expect({0, 2}, shape);
  expect({0, 2, 6, 7}, shape);
  expect({0, 2, 5, 6}, Array<int32_t>({}));
}

// Faults of elements that several threads check.
TEST_F(RaggedGradientCudaTest, FaultsAmongManyElements) {
  constexpr int64_t kElements = 9'000;
  const std::vector<float> numbers(2 * kElements, 1.0F);
  const TensorView host_numbers = TensorView::Vector<float>(numbers);
  const OnDevice device_numbers(host_numbers);
  std::vector<int64_t> splits{0};
  for (int64_t i = 0; i < kElements; ++i) splits.push_back(splits.back() + 2);
  const Array<int32_t> shape({2 * kElements});
  const auto with_faults = [&](const TensorView& values, const std::vector<int64_t>& negative_shapes, int64_t missing) {
    std::vector<std::optional<RaggedView>> elements;
    for (int64_t i = 0; i < kElements; ++i) {
      TensorView piece = values;
      piece.data = values.As<float>() + 2 * i;
      piece.shape = Shape{2};
      elements.emplace_back(RaggedView{{}, piece});
    }
    for (const int64_t i : negative_shapes) elements[static_cast<size_t>(i)]->values.shape = Shape{-1, -2};
    if (missing >= 0) elements[static_cast<size_t>(missing)].reset();
    return elements;
  };
  const auto expect = [&](const std::vector<int64_t>& negative_shapes, int64_t missing,
                          const std::vector<int64_t>& row_splits) {
    const auto device = with_faults(device_numbers, negative_shapes, missing);
    const auto host = with_faults(host_numbers, negative_shapes, missing);
    const auto call = [&](const auto& elements) {
      return RaggedTensorToVariantGradient({Shape{kElements}, elements}, TensorView::Vector<int64_t>(row_splits), shape,
                                           DType::kFloat32);
    };
    const auto got = call(device), want = call(host);
    ExpectSameStatus(got, want);
    if (want.ok()) testing::ExpectSame(got, want);
  };
  expect({}, -1, splits);
  expect({}, 7'777, splits);
  expect({8'999}, -1, splits);
  expect({8'000, 5'000, 8'999}, 10, splits);
  std::vector<int64_t> longer = splits;  // gives element 10, which is missing, 5 values too many
  for (size_t i = 11; i < longer.size(); ++i) longer[i] += 5;
  expect({}, 10, longer);
  expect({8'000}, 10, longer);
  longer[8'500] = 0;
  expect({8'000}, 10, longer);
  longer = splits;
  longer[11] = INT64_MIN;
  longer[10] = INT64_MAX;
  expect({}, 10, longer);
}

// Two threads use the pinned buffers again and again.
TEST_F(RaggedGradientCudaTest, AlwaysTheSame) {
  const GradientOperands operands(DType::kInt32, 5'000, 5, {3});
  const Tensor splits = SplitsTensor(DType::kInt64, operands.splits);
  testing::ExpectAlwaysTheSame([&](const Context& ctx) {
    return RaggedTensorToVariantGradient(operands.variant.device(), splits.view(),
                                         TensorView::Vector<int32_t>(operands.shape), DType::kInt32, ctx);
  });
}

using RaggedVariantCudaTest = GpuTest;

TEST_F(RaggedVariantCudaTest, CutsAndJoinsAsTheCpu) {
  uint64_t seed = 3;
  for (const DType dtype : DTypes(NumericTypes{})) {
    for (const int levels : {0, 1, 2, 3}) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + ", " + std::to_string(levels) + " levels");
      Generator random(++seed);
      const DType splits_dtype = levels % 2 == 0 ? DType::kInt32 : DType::kInt64;
      const RandomRagged ragged(random, dtype, splits_dtype, levels, 20, 4, {3});
      const OnDevice values(ragged.values());
      std::deque<OnDevice> device_levels;
      std::vector<TensorView> device_splits;
      for (const TensorView& level : ragged.splits()) {
        device_splits.push_back(device_levels.emplace_back(level).view());
      }
      for (const bool batched : {false, true}) {
        const auto want = RaggedTensorToVariant(ragged.splits(), ragged.values(), batched);
        ASSERT_TRUE(want.ok());
        for (const std::span<const TensorView> splits : {std::span<const TensorView>(device_splits), ragged.splits()}) {
          const auto got = RaggedTensorToVariant(splits, values, batched);
          ASSERT_TRUE(got.ok()) << got.status().message();
          ASSERT_EQ(got->shape(), want->shape());
          for (size_t i = 0; i < want->elements().size(); ++i) {
            ExpectSameRagged(*got->elements()[i], *want->elements()[i]);
          }
          const int64_t rank = batched ? std::max(levels, 1) : levels;
          const auto back = RaggedTensorFromVariant(got->view(), -1, rank, dtype, splits_dtype);
          const auto host_back = RaggedTensorFromVariant(want->view(), -1, rank, dtype, splits_dtype);
          ASSERT_TRUE(back.ok()) << back.status().message();
          ASSERT_TRUE(host_back.ok()) << host_back.status().message();
          ExpectSameRagged(back->view(), host_back->view());
        }
      }
    }
  }
}

TEST_F(RaggedVariantCudaTest, StacksElements) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kComplex128, DType::kBool}) {
    Variant dense(5, dtype), ragged(6, dtype);
    for (int64_t i = 0; i < 600; ++i) {
      dense.Add(Shape{3, 5});
      ragged.AddRagged(DType::kInt64, {0, i % 5, i % 5, 7}, Shape{7, 2});
    }
    const auto stack = [&](const VariantArrayView& view, int64_t input, int64_t output) {
      return RaggedTensorFromVariant(view, input, output, dtype, DType::kInt64);
    };
    const Shape square{20, 30};
    const auto expect = [&](const Result<Ragged>& got, const Result<Ragged>& want) {
      ASSERT_TRUE(got.ok() && want.ok()) << got.status().message() << want.status().message();
      ExpectSameRagged(got->view(), want->view());
    };
    expect(stack(dense.device(), 0, 0), stack(dense.host(), 0, 0));
    expect(stack(dense.device(), 0, 1), stack(dense.host(), 0, 1));
    expect(stack(ragged.device(), 1, 2), stack(ragged.host(), 1, 2));
    expect(stack(ragged.device(square), 1, 3), stack(ragged.host(square), 1, 3));
    ExpectSameStatus(stack(dense.device(), 1, 2), stack(dense.host(), 1, 2));
  }
}

TEST_F(RaggedVariantCudaTest, ErrorsAreThoseOfTheCpu) {
  Variant scalar(7, DType::kFloat32), shapes(8, DType::kFloat32);
  scalar.Add(Shape{});
  shapes.Add(Shape{2, 3}).Add(Shape{2, 4});
  for (const Variant* variant : {&scalar, &shapes}) {
    const auto run = [](const VariantArrayView& view) {
      return RaggedTensorFromVariant(view, 0, 1, DType::kFloat32, DType::kInt64);
    };
    ExpectSameStatus(run(variant->device()), run(variant->host()));
  }
  const Array<float> values({1, 2, 3});
  const OnDevice device_values(values.view());
  for (const std::vector<int64_t>& numbers : {std::vector<int64_t>{0, 2}, {1, 3}, {0, 2, 1, 3}, {}}) {
    const Tensor host = SplitsTensor(DType::kInt64, numbers);
    const OnDevice device(host.view());
    ExpectSameStatus(RaggedTensorToVariant({{device.view()}}, device_values, true),
                     RaggedTensorToVariant({{host.view()}}, values, true));
  }
}

TEST_F(RaggedVariantCudaTest, RefusesStrings) {
  const TensorView strings{nullptr, DType::kString, Shape{0}, Device::Cuda()};
  EXPECT_EQ(RaggedTensorToVariant({}, strings, true).status().code(), Code::kUnimplemented);
}

}  // namespace
}  // namespace raggrad::ragged_variant
