// Shape: the dimensions of a tensor, outermost first. Up to TensorFlow's 254 of them; with more it is !valid().
//
// A shape takes 48 bytes and stores its number of elements, so that the many shapes of a variant array are quick to
// read. Up to four dimensions lie inside the object, so common shapes need no allocation. Copies of a longer one share
// one heap array. If that cannot be allocated, the shape is !valid() and every operator answers RESOURCE_EXHAUSTED.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>

#pragma GCC visibility push(default)
namespace raggrad {

class Shape {
 public:
  static constexpr int kMaxRank = 254;
  static constexpr int kInside = 4;  // dimensions that take no allocation

  Shape() noexcept = default;  // a scalar
  Shape(std::initializer_list<int64_t> dims) noexcept : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) noexcept {
    SetRank(dims.size());
    if (!valid()) return;
    // One loop, because compilers would make calls of memmove, for a few numbers, of a loop that only copies.
    int64_t* const copy = mutable_data();
    bool fits = true;
    for (size_t i = 0; i < dims.size(); ++i) {
      copy[i] = dims[i];
      fits = fits && dims[i] >= 0 && !__builtin_mul_overflow(count_, dims[i], &count_);
    }
    if (!fits) count_ = -1;
  }
  Shape(const Shape& other) noexcept : dims_(other.dims_), count_(other.count_), rank_(other.rank_) {
    if (is_shared()) AddOwner();
  }
  Shape(Shape&& other) noexcept
      : dims_(other.dims_), count_(std::exchange(other.count_, 1)), rank_(std::exchange(other.rank_, 0)) {}
  Shape& operator=(Shape other) noexcept {
    std::swap(dims_, other.dims_);
    std::swap(count_, other.count_);
    std::swap(rank_, other.rank_);
    return *this;
  }
  ~Shape() {
    if (is_shared()) RemoveOwner();
  }

  // {dim0, tail...}, the shape of most outputs of this library.
  static Shape WithDim0(int64_t dim0, std::span<const int64_t> tail) noexcept;

  bool valid() const noexcept { return rank_ >= 0; }
  int rank() const noexcept { return std::max(rank_, 0); }
  int64_t operator[](int i) const noexcept { return data()[i]; }
  std::span<const int64_t> dims() const noexcept { return {data(), static_cast<size_t>(rank())}; }
  std::span<const int64_t> tail() const noexcept { return rank() == 0 ? dims() : dims().subspan(1); }

  // The product of the dimensions, multiplied from the left; nothing if it leaves [0, 2^63) on the way, or if !valid().
  std::optional<int64_t> NumElements() const noexcept { return count_ < 0 ? std::nullopt : std::optional(count_); }
  static std::optional<int64_t> Product(std::span<const int64_t> dims) noexcept {
    int64_t product = 1;
    for (const int64_t dim : dims) {
      if (dim < 0 || __builtin_mul_overflow(product, dim, &product)) return std::nullopt;
    }
    return product;
  }

  friend bool operator==(const Shape& a, const Shape& b) noexcept {
    return a.valid() == b.valid() && std::ranges::equal(a.dims(), b.dims());
  }

 private:
  union Dims {
    int64_t inside[kInside];
    int64_t* shared;  // the number of owners, then the dimensions, which never change after construction
  };

  // Makes room for this many dimensions in a scalar. Up to four take no function call: tiny calls make a dozen shapes.
  void SetRank(size_t rank) noexcept {
    if (rank <= kInside) {
      rank_ = static_cast<int>(rank);
    } else {
      Allocate(rank);
    }
  }
  void Allocate(size_t rank) noexcept;
  bool is_shared() const noexcept { return rank_ > kInside; }
  void AddOwner() noexcept;
  void RemoveOwner() noexcept;
  int64_t* mutable_data() noexcept { return is_shared() ? dims_.shared + 1 : dims_.inside; }
  const int64_t* data() const noexcept { return is_shared() ? dims_.shared + 1 : dims_.inside; }

  Dims dims_{};
  int64_t count_ = 1;  // negative: NumElements() is nothing
  int rank_ = 0;
};

}  // namespace raggrad
#pragma GCC visibility pop
