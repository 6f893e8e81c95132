#include "raggrad/core/allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <new>

namespace raggrad {
namespace {

size_t PhysicalMemory() noexcept {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_size = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_size <= 0) return SIZE_MAX;
  return static_cast<size_t>(pages) * static_cast<size_t>(page_size);
}

// Up to here memory comes from malloc, with room to align it: 0.05 us where aligned_alloc takes 0.7 us.
constexpr size_t kSmall = 2048;

void* AllocateSmall(size_t bytes) noexcept {
  constexpr size_t kAlignment = Allocator::kAlignment;
  auto* const block = static_cast<unsigned char*>(std::malloc(bytes + kAlignment));
  if (block == nullptr) return nullptr;
  const size_t offset = kAlignment - reinterpret_cast<uintptr_t>(block) % kAlignment;  // 1 to 64
  block[offset - 1] = static_cast<unsigned char>(offset);
  return block + offset;
}

void DeallocateSmall(void* pointer) noexcept {
  auto* const data = static_cast<unsigned char*>(pointer);
  std::free(data - data[-1]);
}

// From here on in pages of 2 MiB, where the system has them on request: the first touch of 187 MB takes 10 ms instead
// of 60 ms in pages of 4 KiB.
constexpr size_t kLarge = size_t{4} << 20;
constexpr size_t kHugePage = size_t{2} << 20;

void* AllocateLarge(size_t bytes) noexcept {
  void* pointer = nullptr;
  if (posix_memalign(&pointer, kHugePage, bytes) != 0) return nullptr;
  madvise(pointer, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // a wish: if it is refused, pages are small
  return pointer;
}

class HeapAllocator final : public Allocator {
 public:
  void* Allocate(size_t bytes) noexcept override {
    if (bytes <= kSmall) return AllocateSmall(bytes);
    if (bytes > largest_request_) return nullptr;
    if (bytes >= kLarge) return AllocateLarge(bytes);
    return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
  void Deallocate(void* pointer, size_t bytes) noexcept override {
    if (bytes <= kSmall) return DeallocateSmall(pointer);
    std::free(pointer);
  }

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
