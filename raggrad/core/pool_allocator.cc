#include "raggrad/core/pool_allocator.h"

#include <algorithm>
#include <bit>

#include "raggrad/core/fork.h"

namespace raggrad {

class PoolAllocator::Lock : public ForkSafeLock {
 public:
  template <class... How>
  explicit Lock(PoolAllocator& pool, How... how) noexcept : ForkSafeLock(pool.lock_, how...) {
    if (was_abandoned()) pool.num_idle_ = pool.idle_bytes_ = 0;  // the holder may have been handing a block out
  }
};

size_t PoolAllocator::BlockBytes(size_t bytes) noexcept {
  if (bytes < kLeast) return bytes;
  const size_t step = std::bit_floor(bytes) / 8;
  return bytes > SIZE_MAX - step ? bytes : (bytes + step - 1) / step * step;
}

void* PoolAllocator::Allocate(size_t bytes) noexcept {
  const size_t block_bytes = BlockBytes(bytes);
  if (bytes >= kLeast) {
    const Lock lock(*this, std::try_to_lock);
    if (lock.owns_lock()) {
      Block* const end = idle_.begin() + num_idle_;
      Block* const found = std::find_if(idle_.begin(), end, [&](const Block& b) { return b.bytes == block_bytes; });
      if (found != end) {
        void* const pointer = found->pointer;
        std::move(found + 1, end, found);
        --num_idle_;
        idle_bytes_ -= block_bytes;
        return pointer;
      }
    }
  }
  void* const pointer = upstream_.Allocate(block_bytes);
  return pointer == nullptr && DropAll() ? upstream_.Allocate(block_bytes) : pointer;
}

void PoolAllocator::Deallocate(void* pointer, size_t bytes) noexcept {
  const size_t block_bytes = BlockBytes(bytes);
  if (bytes >= kLeast) {
    const Lock lock(*this, std::try_to_lock);
    if (lock.owns_lock() && block_bytes <= max_idle_bytes_) {
      while (num_idle_ == idle_.size() || idle_bytes_ > max_idle_bytes_ - block_bytes) DropOldest();
      idle_[num_idle_++] = {pointer, block_bytes};
      idle_bytes_ += block_bytes;
      return;
    }
  }
  upstream_.Deallocate(pointer, block_bytes);
}

void PoolAllocator::SetMaxIdleBytes(size_t bytes) noexcept {
  const Lock lock(*this);
  max_idle_bytes_ = bytes;
  while (idle_bytes_ > max_idle_bytes_) DropOldest();
}

size_t PoolAllocator::max_idle_bytes() noexcept {
  const Lock lock(*this);
  return max_idle_bytes_;
}

size_t PoolAllocator::idle_bytes() noexcept {
  const Lock lock(*this);
  return idle_bytes_;
}

bool PoolAllocator::DropAll() noexcept {
  const Lock lock(*this, std::try_to_lock);
  if (!lock.owns_lock() || num_idle_ == 0) return false;
  while (num_idle_ > 0) DropOldest();
  return true;
}

void PoolAllocator::DropOldest() noexcept {
  const Block oldest = idle_[0];
  std::move(idle_.begin() + 1, idle_.begin() + num_idle_, idle_.begin());
  --num_idle_;
  idle_bytes_ -= oldest.bytes;
  upstream_.Deallocate(oldest.pointer, oldest.bytes);
}

}  // namespace raggrad
