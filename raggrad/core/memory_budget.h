// MemoryBudget: decides whether memory that is asked for would still fit when it is used. Internal to the library.
//
// Linux grants more memory than there is, and kills a process that writes to it. So the sum of requests is compared
// with the available memory. The system's figures lack memory that was granted but not yet written to, so it is
// subtracted. The system is asked how much of a block was written to (mincore) only if the answer depends on it.
//
// A reading of the figures allows a quarter of the room, 64 MiB at most, to be granted before the next one. Until then
// a request costs one atomic subtraction, 5 ns. Three things are not seen; AvailableMemory keeps some memory free for
// them: blocks below kTracked that nobody writes to, memory that other processes were granted but have not written to,
// and memory that they write to between two readings.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "raggrad/core/fork.h"

namespace raggrad {

class MemoryBudget {
 public:
  // Smaller blocks count as written to.
  static constexpr size_t kTracked = size_t{1} << 20;

  // `available`: AvailableMemory, or a test's substitute.
  explicit constexpr MemoryBudget(size_t (*available)() noexcept) noexcept : available_(available) {}

  // Whether `bytes` more bytes will fit. If so, the caller must call Granted.
  bool Admit(size_t bytes) noexcept;
  // Reports the block of an admitted request; null if the allocation failed.
  void Granted(const void* block, size_t bytes) noexcept {
    if (bytes >= kTracked) Track(block, bytes);
  }
  // Reports that a block is about to be given back.
  void Returned(const void* block, size_t bytes) noexcept {
    if (bytes >= kTracked) Forget(block);
  }

 private:
  struct Block {
    const void* begin;
    size_t bytes;
    bool written;  // all of it, at the last look
  };

  // Callers of these three hold the lock.
  void EnterAfter(const ForkSafeLock& lock) noexcept;
  size_t Room(size_t wanted) noexcept;  // bytes that can be granted beyond those granted so far
  size_t Unwritten() noexcept;

  void Track(const void* block, size_t bytes) noexcept;
  void Forget(const void* block) noexcept;

  size_t (*const available_)() noexcept;
  std::atomic<size_t> allowance_{0};   // bytes that can be granted before the next reading
  std::atomic<size_t> on_the_way_{0};  // bytes admitted, but not granted yet
  std::atomic<int> lock_{0};           // guards the members below
  int generation_ = 0;                 // ForkGeneration at the last use: a child forgets its parent's requests
  size_t maybe_unwritten_ = 0;         // bytes of all blocks that are not known to be written to
  size_t num_blocks_ = 0;
  std::array<Block, 4096> blocks_{};  // in no order; any more count as written to
};

}  // namespace raggrad
