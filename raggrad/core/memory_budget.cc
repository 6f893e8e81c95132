#include "raggrad/core/memory_budget.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace raggrad {
namespace {

constexpr size_t kLongestStride = size_t{64} << 20;  // most bytes granted between two readings

size_t SaturatingSubtract(size_t a, size_t b) noexcept { return a > b ? a - b : 0; }

// Bytes of a block that have no page yet, because nobody has written to them; 0 if the system does not say.
size_t UnwrittenBytes(const void* block, size_t bytes) noexcept {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGE_SIZE));
  unsigned char present[4096];  // one per page: 16 MiB at a time
  const uintptr_t end = (reinterpret_cast<uintptr_t>(block) + bytes) / page * page;
  uintptr_t at = (reinterpret_cast<uintptr_t>(block) + page - 1) / page * page;
  size_t unwritten = 0;
  while (at < end) {
    const size_t pages = std::min<size_t>((end - at) / page, sizeof(present));
    if (mincore(reinterpret_cast<void*>(at), pages * page, present) != 0) return 0;
    unwritten += page * static_cast<size_t>(
                            std::count_if(present, present + pages, [](unsigned char c) { return (c & 1) == 0; }));
    at += pages * page;
  }
  return unwritten;
}

}  // namespace

bool MemoryBudget::Admit(size_t bytes) noexcept {
  size_t allowance = allowance_.load(std::memory_order_relaxed);
  while (allowance >= bytes) {
    if (!allowance_.compare_exchange_weak(allowance, allowance - bytes, std::memory_order_relaxed)) continue;
    if (bytes >= kTracked) on_the_way_.fetch_add(bytes, std::memory_order_relaxed);
    return true;
  }
  const ForkSafeLock lock(lock_);
  EnterAfter(lock);
  size_t room = Room(bytes);
  if (room < bytes) {  // the C library may hold on to memory that was given back
    malloc_trim(0);
    room = Room(bytes);
  }
  if (room < bytes) return false;
  allowance_.store(std::min((room - bytes) / 4, kLongestStride), std::memory_order_relaxed);
  if (bytes >= kTracked) on_the_way_.fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

void MemoryBudget::EnterAfter(const ForkSafeLock& lock) noexcept {
  if (generation_ == ForkGeneration()) return;
  generation_ = ForkGeneration();
  on_the_way_.store(0, std::memory_order_relaxed);
  if (lock.was_abandoned()) num_blocks_ = maybe_unwritten_ = 0;  // all count as written to: they were, or soon will be
}

size_t MemoryBudget::Room(size_t wanted) noexcept {
  const size_t on_the_way = on_the_way_.load(std::memory_order_relaxed);
  const size_t at_least = SaturatingSubtract(available_(), on_the_way + maybe_unwritten_);
  if (at_least >= wanted || maybe_unwritten_ == 0) return at_least;
  // Unwritten() comes first: memory that is written to in between counts twice rather than never.
  const size_t unwritten = Unwritten();
  return SaturatingSubtract(available_(), on_the_way + unwritten);
}

size_t MemoryBudget::Unwritten() noexcept {
  size_t unwritten = 0;
  for (size_t i = 0; i < num_blocks_; ++i) {
    Block& block = blocks_[i];
    if (block.written) continue;
    const size_t bytes = UnwrittenBytes(block.begin, block.bytes);
    unwritten += bytes;
    if (bytes > 0) continue;
    block.written = true;
    maybe_unwritten_ -= block.bytes;
  }
  return unwritten;
}

void MemoryBudget::Track(const void* block, size_t bytes) noexcept {
  const ForkSafeLock lock(lock_);
  EnterAfter(lock);
  on_the_way_.fetch_sub(bytes, std::memory_order_relaxed);
  if (block == nullptr || num_blocks_ == blocks_.size()) return;
  blocks_[num_blocks_++] = {block, bytes, /*written=*/false};
  maybe_unwritten_ += bytes;
}

void MemoryBudget::Forget(const void* block) noexcept {
  const ForkSafeLock lock(lock_);
  EnterAfter(lock);
  for (size_t i = num_blocks_; i-- > 0;) {  // the newest blocks are mostly given back first
    if (blocks_[i].begin != block) continue;
    if (!blocks_[i].written) maybe_unwritten_ -= blocks_[i].bytes;
    blocks_[i] = blocks_[--num_blocks_];
    return;
  }
}

}  // namespace raggrad
