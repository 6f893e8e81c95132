#include "raggrad/core/shape.h"

#include <atomic>
#include <new>

namespace raggrad {

Shape Shape::Uninitialized(size_t rank) noexcept {
  Shape shape;
  if (rank > kInside && rank <= kMaxRank) shape.dims_.shared = new (std::nothrow) int64_t[rank + 1];
  if (rank > kMaxRank || (rank > kInside && shape.dims_.shared == nullptr)) {
    shape.count_ = -1;
    shape.rank_ = -1;
    return shape;
  }
  shape.rank_ = static_cast<int>(rank);
  if (shape.is_shared()) shape.dims_.shared[0] = 1;
  return shape;
}

void Shape::AddOwner() noexcept { std::atomic_ref(dims_.shared[0]).fetch_add(1, std::memory_order_relaxed); }

void Shape::RemoveOwner() noexcept {
  if (std::atomic_ref(dims_.shared[0]).fetch_sub(1, std::memory_order_acq_rel) == 1) delete[] dims_.shared;
}

Shape::Shape(std::span<const int64_t> dims) noexcept : Shape(Uninitialized(dims.size())) {
  if (!valid()) return;
  std::ranges::copy(dims, mutable_data());
  count_ = Product(dims).value_or(-1);
}

Shape Shape::WithDim0(int64_t dim0, std::span<const int64_t> tail) noexcept {
  Shape shape = Uninitialized(tail.size() + 1);
  if (!shape.valid()) return shape;
  shape.mutable_data()[0] = dim0;
  std::ranges::copy(tail, shape.mutable_data() + 1);
  shape.count_ = Product(shape.dims()).value_or(-1);
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
