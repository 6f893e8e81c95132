// Shape: the dimensions of a tensor, outermost first. Up to TensorFlow's 254 of them.
//
// Eight dimensions lie inside the object, so that the shapes people use cost no allocation. Longer ones share one heap
// array. If that array cannot be had, the shape is !valid() and every operator answers RESOURCE_EXHAUSTED.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>

#pragma GCC visibility push(default)
namespace raggrad {

class Shape {
 public:
  static constexpr int kMaxRank = 254;

  Shape() noexcept = default;  // a scalar
  Shape(std::initializer_list<int64_t> dims) noexcept : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) noexcept;

  // {dim0, tail...}: what most outputs of this library look like.
  static Shape WithDim0(int64_t dim0, std::span<const int64_t> tail) noexcept;

  bool valid() const noexcept { return rank_ >= 0; }
  int rank() const noexcept { return std::max(rank_, 0); }
  int64_t operator[](int i) const noexcept { return data()[i]; }
  std::span<const int64_t> dims() const noexcept { return {data(), static_cast<size_t>(rank())}; }
  std::span<const int64_t> tail() const noexcept { return rank() == 0 ? dims() : dims().subspan(1); }

  // The product of the dimensions, multiplied from the left; nothing if it leaves [0, 2^63) on the way.
  std::optional<int64_t> NumElements() const noexcept { return Product(dims()); }
  static std::optional<int64_t> Product(std::span<const int64_t> dims) noexcept;

  friend bool operator==(const Shape& a, const Shape& b) noexcept {
    return a.valid() == b.valid() && std::ranges::equal(a.dims(), b.dims());
  }

 private:
  static constexpr int kInline = 8;

  static Shape Uninitialized(size_t rank) noexcept;
  int64_t* mutable_data() noexcept { return rank_ > kInline ? heap_.get() : inline_.data(); }
  const int64_t* data() const noexcept { return rank_ > kInline ? heap_.get() : inline_.data(); }

  int rank_ = 0;
  std::array<int64_t, kInline> inline_{};
  std::shared_ptr<int64_t[]> heap_;  // never written after construction
};

}  // namespace raggrad
#pragma GCC visibility pop
