// Tensor: a dense array that owns its memory, as operators return it. Movable, not copyable.
#pragma once

#include <cstddef>
#include <utility>

#include "raggrad/core/allocator.h"
#include "raggrad/core/tensor_view.h"

#pragma GCC visibility push(default)
namespace raggrad {

class Tensor {
 public:
  Tensor() noexcept = default;
  // Takes over `data`: `bytes` bytes that came from `allocator`, which must outlive the tensor. Null data owns nothing.
  Tensor(Allocator* allocator, void* data, size_t bytes, DType dtype, Shape shape, Device device) noexcept
      : view_{data, dtype, std::move(shape), device}, data_(data), bytes_(bytes), allocator_(allocator) {}
  Tensor(Tensor&& other) noexcept
      : view_{std::exchange(other.view_.data, nullptr), other.view_.dtype, std::move(other.view_.shape),
              other.view_.device},
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        allocator_(other.allocator_) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(view_, other.view_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(allocator_, other.allocator_);
    return *this;
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() {
    if (data_ != nullptr) allocator_->Deallocate(data_, bytes_);
  }

  const TensorView& view() const noexcept { return view_; }
  DType dtype() const noexcept { return view_.dtype; }
  const Shape& shape() const noexcept { return view_.shape; }
  void* data() noexcept { return data_; }
  size_t bytes() const noexcept { return bytes_; }  // of the allocation
  template <class T>
  T* As() noexcept {
    return static_cast<T*>(data_);
  }
  template <class T>
  const T* As() const noexcept {
    return view_.As<T>();
  }

  // Gives the memory to the caller, who has to give it back to the allocator it came from. The view still shows it.
  void* release() noexcept { return std::exchange(data_, nullptr); }

 private:
  TensorView view_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Allocator* allocator_ = nullptr;
};

}  // namespace raggrad
#pragma GCC visibility pop
