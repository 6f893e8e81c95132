// Scratch<T>: uninitialised working memory from an allocator, given back when it goes out of scope.
// Internal to the library.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "raggrad/core/context.h"
#include "raggrad/core/error_text.h"

namespace raggrad {

template <class T>
class Scratch {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  // In host memory.
  static Result<Scratch> Make(const Context& ctx, int64_t count) noexcept { return Make(*ctx.allocator, count); }
  static Result<Scratch> Make(Allocator& allocator, int64_t count) noexcept {
    Scratch scratch;
    scratch.allocator_ = &allocator;
    if (count <= 0) return Result<Scratch>(std::move(scratch));  // explicit, because nvcc 13.0 would copy
    if (!__builtin_mul_overflow(static_cast<size_t>(count), sizeof(T), &scratch.bytes_)) {
      scratch.data_ = static_cast<T*>(allocator.Allocate(scratch.bytes_));
    }
    if (scratch.data_ == nullptr) {
      return MakeError(Code::kResourceExhausted, "no memory for ", count, " x ", sizeof(T), " bytes of scratch");
    }
    return Result<Scratch>(std::move(scratch));
  }

  Scratch() noexcept = default;
  Scratch(Scratch&& other) noexcept { *this = std::move(other); }
  Scratch& operator=(Scratch&& other) noexcept {
    std::swap(allocator_, other.allocator_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Scratch() {
    if (data_ != nullptr) allocator_->Deallocate(data_, bytes_);
  }

  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  T& operator[](int64_t i) noexcept { return data_[i]; }
  const T& operator[](int64_t i) const noexcept { return data_[i]; }

 private:
  Allocator* allocator_ = nullptr;
  T* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace raggrad
