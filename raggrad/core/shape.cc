#include "raggrad/core/shape.h"

#include <new>

namespace raggrad {

Shape Shape::Uninitialized(size_t rank) noexcept {
  Shape shape;
  shape.rank_ = rank <= kMaxRank ? static_cast<int>(rank) : -1;
  if (shape.rank_ > kInline) {
    try {
      shape.heap_ = std::shared_ptr<int64_t[]>(new int64_t[rank]);
    } catch (const std::bad_alloc&) {
      shape.rank_ = -1;
    }
  }
  return shape;
}

Shape::Shape(std::span<const int64_t> dims) noexcept : Shape(Uninitialized(dims.size())) {
  if (valid()) std::ranges::copy(dims, mutable_data());
}

Shape Shape::WithDim0(int64_t dim0, std::span<const int64_t> tail) noexcept {
  Shape shape = Uninitialized(tail.size() + 1);
  if (!shape.valid()) return shape;
  shape.mutable_data()[0] = dim0;
  std::ranges::copy(tail, shape.mutable_data() + 1);
  return shape;
}

std::optional<int64_t> Shape::Product(std::span<const int64_t> dims) noexcept {
  int64_t product = 1;
  for (const int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(product, dim, &product)) return std::nullopt;
  }
  return product;
}

}  // namespace raggrad
