#include "raggrad/core/allocator.h"

#include <unistd.h>

#include <cstdlib>

namespace raggrad {
namespace {

size_t PhysicalMemory() noexcept {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_size = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_size <= 0) return SIZE_MAX;
  return static_cast<size_t>(pages) * static_cast<size_t>(page_size);
}

class HeapAllocator final : public Allocator {
 public:
  void* Allocate(size_t bytes) noexcept override {
    if (bytes > largest_request_) return nullptr;
    return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
  void Deallocate(void* pointer, size_t /*bytes*/) noexcept override { std::free(pointer); }

 private:
  const size_t largest_request_ = PhysicalMemory();
};

}  // namespace

Allocator& DefaultAllocator() noexcept {
  // Placed in static storage and never destroyed, so that tensors may outlive main().
  alignas(HeapAllocator) static std::byte storage[sizeof(HeapAllocator)];
  static HeapAllocator* const allocator = new (storage) HeapAllocator;
  return *allocator;
}

}  // namespace raggrad
