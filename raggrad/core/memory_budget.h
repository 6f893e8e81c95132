// MemoryBudget: decides whether memory that is asked for would still fit when it is used. Internal to the library.
//
// Linux grants more memory than there is, and kills a process when it writes to it. So requests are compared with the
// memory that is available, in sum: what was granted before and has not been written to is not in the system's figures
// and is taken off. How much of a block was written to is asked of the system (mincore), and only if it matters.
//
// The figures are read when as much as the last reading allowed has been granted, a quarter of the room and 64 MiB at
// most. Until then a request costs one atomic subtraction, 5 ns. Three things are not seen, and are what
// AvailableMemory keeps some memory free for: blocks below kTracked that nobody writes to, memory that other processes
// were granted but have not written to, and memory that they write to between two readings.
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

  // `available`: AvailableMemory, or a test's.
  explicit constexpr MemoryBudget(size_t (*available)() noexcept) noexcept : available_(available) {}

  // Whether so many bytes more will fit. If so, Granted must follow.
  bool Admit(size_t bytes) noexcept;
  // An admitted request got its block; null if there was none after all.
  void Granted(const void* block, size_t bytes) noexcept {
    if (bytes >= kTracked) Track(block, bytes);
  }
  // Before a block is given back.
  void Returned(const void* block, size_t bytes) noexcept {
    if (bytes >= kTracked) Forget(block);
  }

 private:
  struct Block {
    const void* begin;
    size_t bytes;
    bool written;  // all of it, when we looked
  };

  // These three with the lock held.
  void EnterAfter(const ForkSafeLock& lock) noexcept;
  size_t Room(size_t wanted) noexcept;  // what can be granted beyond all that was
  size_t Unwritten() noexcept;
  void Track(const void* block, size_t bytes) noexcept;
  void Forget(const void* block) noexcept;

  size_t (*const available_)() noexcept;
  std::atomic<size_t> allowance_{0};   // what can be granted before the next look
  std::atomic<size_t> on_the_way_{0};  // admitted, but not granted yet
  std::atomic<int> lock_{0};           // of the rest
  int generation_ = 0;                 // as ForkGeneration: requests on the way in the parent never arrive in a child
  size_t maybe_unwritten_ = 0;         // bytes of all blocks that are not known to be written to
  size_t num_blocks_ = 0;
  std::array<Block, 4096> blocks_{};  // in no order; any more count as written to
};

}  // namespace raggrad
