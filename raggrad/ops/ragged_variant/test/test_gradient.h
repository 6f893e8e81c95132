// Operands of RaggedTensorToVariantGradient for tests, and the comparison of its result with the reference.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "raggrad/ops/ragged_variant/ragged_variant.h"
#include "raggrad/ops/ragged_variant/test/reference.h"
#include "raggrad/testing/array.h"

namespace raggrad::ragged_variant {

using testing::Array;

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
    elements_.push_back(RaggedView{{}, {bytes.data(), dtype_, shape, Device::Cpu()}});
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

inline void ExpectSame(const Result<Tensor>& got, const std::optional<ReferenceOutput>& want, DType dtype) {
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

// Two elements of 2 and 1 floats: valid operands, which tests change in one place.
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

}  // namespace raggrad::ragged_variant
