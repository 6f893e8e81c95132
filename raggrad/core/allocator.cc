#include "raggrad/core/allocator.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#include "raggrad/core/first_use.h"
#include "raggrad/core/limits.h"
#include "raggrad/core/memory_budget.h"

namespace raggrad {
namespace {

// Blocks up to this size come from malloc, with room to align them: 0.05 us, where aligned_alloc takes 0.7 us.
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

// Blocks from this size on ask for 2 MiB pages: the first touch of 187 MB takes 10 ms, with 4 KiB pages 60 ms.
constexpr size_t kLarge = size_t{4} << 20;
constexpr size_t kHugePage = size_t{2} << 20;

void* AllocateLarge(size_t bytes) noexcept {
  void* pointer = nullptr;
  if (posix_memalign(&pointer, kHugePage, bytes) != 0) return nullptr;
  madvise(pointer, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // a hint: if it is refused, pages are small
  return pointer;
}

void* AllocateAligned(size_t bytes) noexcept {
  constexpr size_t kAlignment = Allocator::kAlignment;
  return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

class HeapAllocator final : public Allocator {
 public:
  void* Allocate(size_t bytes) noexcept override {
    if (bytes <= kSmall) return AllocateSmall(bytes);
    if (!budget_.Admit(bytes)) return nullptr;
    void* const block = bytes >= kLarge ? AllocateLarge(bytes) : AllocateAligned(bytes);
    budget_.Granted(block, bytes);
    return block;
  }
  void Deallocate(void* pointer, size_t bytes) noexcept override {
    if (bytes <= kSmall) return DeallocateSmall(pointer);
    budget_.Returned(pointer, bytes);
    std::free(pointer);
  }

 private:
  MemoryBudget budget_{[]() noexcept { return AvailableMemory(); }};
};

}  // namespace

Allocator& DefaultAllocator() noexcept {
  static constinit FirstUse<HeapAllocator> allocator;
  return allocator.Get([] { return HeapAllocator(); });
}

}  // namespace raggrad
