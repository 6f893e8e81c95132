// PoolAllocator: keeps large blocks that were given back, for the next request of about the same size.
//
//   PoolAllocator pool;
//   Context ctx;
//   ctx.allocator = &pool;  // for all calls of a training loop
//
// The first touch of fresh memory is a page fault per page: for a large output that costs more than computing it. A
// program that makes and drops outputs of about the same size, step after step, pays that once.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "raggrad/core/allocator.h"

#pragma GCC visibility push(default)
namespace raggrad {

// Thread-safe. A request that meets another thread's goes straight to upstream. If upstream refuses a request, all idle
// blocks are freed and the request is made once more. A child of fork() can use it like its parent; if a thread of the
// parent was using it during fork(), the child forgets the idle blocks.
class PoolAllocator final : public Allocator {
 public:
  // Smaller requests go straight to upstream: the C library reuses those itself.
  static constexpr size_t kLeast = size_t{1} << 20;

  // Keeps at most `max_idle_bytes`, in at most 32 blocks; frees the oldest first.
  explicit PoolAllocator(size_t max_idle_bytes = size_t{256} << 20, Allocator& upstream = DefaultAllocator()) noexcept
      : upstream_(upstream), max_idle_bytes_(max_idle_bytes) {}
  // All memory must have been given back.
  ~PoolAllocator() override { SetMaxIdleBytes(0); }

  void* Allocate(size_t bytes) noexcept override;
  void Deallocate(void* pointer, size_t bytes) noexcept override;

  // Frees idle blocks above the limit.
  void SetMaxIdleBytes(size_t bytes) noexcept;
  size_t max_idle_bytes() noexcept;
  size_t idle_bytes() noexcept;

  // Size of the block for a request: rounded up by less than an eighth, so that blocks fit similar requests.
  static size_t BlockBytes(size_t bytes) noexcept;

 private:
  struct Block {
    void* pointer;
    size_t bytes;
  };

  class Lock;

  void DropOldest() noexcept;
  // Frees all idle blocks; false if there are none, or another thread holds the lock.
  bool DropAll() noexcept;

  Allocator& upstream_;
  std::atomic<int> lock_{0};  // guards the members below
  size_t max_idle_bytes_;
  size_t idle_bytes_ = 0;
  std::array<Block, 32> idle_{};  // oldest first
  size_t num_idle_ = 0;
};

}  // namespace raggrad
#pragma GCC visibility pop
