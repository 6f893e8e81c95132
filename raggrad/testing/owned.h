// Operands that own their memory, of a dtype known only at run time; and how two tensors differ. Shared by the golden
// reader and the fuzzers; needs no GoogleTest.
#pragma once

#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "raggrad/core/ragged.h"
#include "raggrad/core/tensor.h"

namespace raggrad::testing {

// Gives each request exactly its bytes, so that AddressSanitizer sees the first byte read or written past them. Refuses
// requests larger than `limit` and request number `fail_at`, counted from 0. Thread-safe.
class ExactAllocator final : public Allocator {
 public:
  explicit ExactAllocator(size_t limit = SIZE_MAX, int64_t fail_at = -1) noexcept : limit_(limit), fail_at_(fail_at) {}
  void* Allocate(size_t bytes) noexcept override;
  void Deallocate(void* pointer, size_t bytes) noexcept override;

  int64_t live() const noexcept { return live_; }  // allocations that have not been given back

 private:
  const size_t limit_;
  const int64_t fail_at_;
  std::atomic<int64_t> requests_{0};
  std::atomic<int64_t> live_{0};
};

// A tensor that holds a copy of `bytes`, which must be as many as the shape and the dtype (not string) take. Nothing is
// checked, so that a fuzzer can give a tensor without elements any shape.
Tensor TensorOfBytes(DType dtype, Shape shape, std::string_view bytes);
Tensor TensorOfStrings(Shape shape, const std::vector<std::string>& strings);
template <class T>
Tensor TensorOf(const std::vector<T>& values, Shape shape) {
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return TensorOfBytes(kDTypeOf<T>, std::move(shape), bytes);
}

// A vector of values[positions[i]], or of the scalar `otherwise` where the position is negative.
Tensor Gather(const TensorView& values, std::span<const int64_t> positions, const TensorView& otherwise = {});
// The same with zeros; not for strings.
Tensor GatherOrZero(const TensorView& values, std::span<const int64_t> positions);

class OwnedTensorList {
 public:
  explicit OwnedTensorList(std::vector<Tensor> tensors);

  std::span<const TensorView> views() const noexcept { return views_; }

 private:
  std::vector<Tensor> tensors_;
  std::vector<TensorView> views_;
};

// An array of ragged tensors, some of them missing.
class OwnedVariantArray {
 public:
  struct Ragged {
    std::vector<Tensor> nested_splits;
    Tensor values;
  };

  OwnedVariantArray(Shape shape, std::vector<std::optional<Ragged>> elements);

  const VariantArrayView& view() const noexcept { return view_; }

 private:
  std::vector<std::optional<Ragged>> elements_;
  std::vector<std::vector<TensorView>> split_views_;      // one list per element
  std::vector<std::optional<RaggedView>> element_views_;  // what view_ points to
  VariantArrayView view_;
};

// "" if dtype, shape and every element agree by SameBits; otherwise the first difference in words.
std::string Difference(const TensorView& got, const TensorView& want);

}  // namespace raggrad::testing
