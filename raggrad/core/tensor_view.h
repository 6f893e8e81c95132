// TensorView: somebody else's dense, row-major array. Cheap to copy; owns nothing.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "raggrad/core/device.h"
#include "raggrad/core/dtype.h"
#include "raggrad/core/shape.h"

// Lets clang refuse a view that outlives the value behind it.
#if __has_cpp_attribute(clang::lifetimebound)
#define RAGGRAD_LIFETIME_BOUND [[clang::lifetimebound]]
#else
#define RAGGRAD_LIFETIME_BOUND
#endif

#pragma GCC visibility push(default)
namespace raggrad {

struct TensorView {
  const void* data = nullptr;  // aligned for its elements (DTypeAlignment); may be null if there are none
  DType dtype = DType::kInvalid;
  Shape shape;
  Device device = {};

  template <class T>
  static TensorView Of(const T* data, Shape shape) noexcept {
    return {data, kDTypeOf<T>, std::move(shape), {}};
  }
  template <class T>
  static TensorView Vector(std::span<const T> values) noexcept {
    return Of(values.data(), Shape{static_cast<int64_t>(values.size())});
  }
  // The value must live as long as the view: fine for a temporary inside a call's argument list.
  template <class T>
  static TensorView Scalar(const T& value RAGGRAD_LIFETIME_BOUND) noexcept {
    return Of(&value, Shape{});
  }

  int rank() const noexcept { return shape.rank(); }
  int64_t dim(int i) const noexcept { return shape[i]; }
  template <class T>
  const T* As() const noexcept {
    return static_cast<const T*>(data);
  }
};

// The same for an array that a function changes.
struct MutableTensorView {
  void* data = nullptr;  // as TensorView's
  DType dtype = DType::kInvalid;
  Shape shape;
  Device device = {};

  template <class T>
  static MutableTensorView Of(T* data, Shape shape) noexcept {
    return {data, kDTypeOf<T>, std::move(shape), {}};
  }

  TensorView view() const noexcept { return {data, dtype, shape, device}; }
};

}  // namespace raggrad
#pragma GCC visibility pop
