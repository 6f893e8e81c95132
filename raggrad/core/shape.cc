#include "raggrad/core/shape.h"

#include <atomic>
#include <new>

namespace raggrad {

void Shape::Allocate(size_t rank) noexcept {
  if (rank <= kMaxRank) dims_.shared = new (std::nothrow) int64_t[rank + 1];
  if (rank > kMaxRank || dims_.shared == nullptr) {
    count_ = -1;
    rank_ = -1;
    return;
  }
  rank_ = static_cast<int>(rank);
  dims_.shared[0] = 1;
}

void Shape::AddOwner() noexcept { std::atomic_ref(dims_.shared[0]).fetch_add(1, std::memory_order_relaxed); }

void Shape::RemoveOwner() noexcept {
  if (std::atomic_ref(dims_.shared[0]).fetch_sub(1, std::memory_order_acq_rel) == 1) delete[] dims_.shared;
}

Shape Shape::WithDim0(int64_t dim0, std::span<const int64_t> tail) noexcept {
  Shape shape;
  shape.SetRank(tail.size() + 1);
  if (!shape.valid()) return shape;
  shape.mutable_data()[0] = dim0;
  std::ranges::copy(tail, shape.mutable_data() + 1);
  shape.count_ = Product(shape.dims()).value_or(-1);
  return shape;
}

}  // namespace raggrad
