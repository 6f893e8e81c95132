// List<T>: an array of fixed size in memory of an allocator. Movable, not copyable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "raggrad/core/allocator.h"
#include "raggrad/core/result.h"

#pragma GCC visibility push(default)
namespace raggrad {

template <class T>
class List {
  static_assert(std::is_nothrow_default_constructible_v<T> && alignof(T) <= Allocator::kAlignment);

 public:
  // Makes `size` default-constructed objects; RESOURCE_EXHAUSTED if there is no memory. The allocator must outlive the
  // list.
  static Result<List> Make(Allocator* allocator, int64_t size) noexcept {
    List list;
    if (size <= 0) return list;
    size_t bytes = 0;
    void* const memory =
        __builtin_mul_overflow(static_cast<size_t>(size), sizeof(T), &bytes) ? nullptr : allocator->Allocate(bytes);
    if (memory == nullptr) return Status(Code::kResourceExhausted, "no memory for a list");
    list.allocator_ = allocator;
    list.data_ = static_cast<T*>(memory);
    list.size_ = size;
    std::uninitialized_default_construct_n(list.data_, size);
    return list;
  }

  List() noexcept = default;
  List(List&& other) noexcept { *this = std::move(other); }
  List& operator=(List&& other) noexcept {
    std::swap(allocator_, other.allocator_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~List() {
    if (data_ == nullptr) return;
    std::destroy_n(data_, size_);
    allocator_->Deallocate(data_, static_cast<size_t>(size_) * sizeof(T));
  }

  int64_t size() const noexcept { return size_; }
  T& operator[](int64_t i) noexcept { return data_[i]; }
  const T& operator[](int64_t i) const noexcept { return data_[i]; }
  std::span<T> span() noexcept { return {data_, static_cast<size_t>(size_)}; }
  std::span<const T> span() const noexcept { return {data_, static_cast<size_t>(size_)}; }

 private:
  Allocator* allocator_ = nullptr;
  T* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace raggrad
#pragma GCC visibility pop
