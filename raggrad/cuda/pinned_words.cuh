// Pinned host memory for reports of kernels to a waiting thread. Internal to the CUDA library.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "raggrad/core/status.h"

namespace raggrad::cuda {

inline constexpr int64_t kWords = 16;

// kWords words of pinned host memory. Its destructor leaves them to the next block, so no kernel may still write them,
// unless ReuseAfter tells how to see when it has.
class PinnedBlock {
 public:
  PinnedBlock() noexcept = default;
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;
  ~PinnedBlock();

  // Zero at the first call; null if there is no memory.
  uint64_t* words() noexcept;

  // Leaves the words to the next block only after a kernel has written `token` to `word`, one of them.
  void ReuseAfter(const uint64_t& word, uint64_t token) noexcept {
    last_word_ = &word;
    last_token_ = token;
  }

 private:
  uint64_t* words_ = nullptr;
  const uint64_t* last_word_ = nullptr;  // null: no kernel writes the words
  uint64_t last_token_ = 0;
};

// The words of the calling thread's own block.
uint64_t* PinnedWords() noexcept;

// A word that a kernel writes last, which tells the host that the rest of the report is complete. It is unique in the
// process and never 0, so that words left by other calls and threads are never taken for the report.
uint64_t NewToken() noexcept;

// Whether a kernel has written the token. What it wrote before can then be read.
inline bool HasToken(const uint64_t& word, uint64_t token) noexcept {
  return std::atomic_ref(const_cast<uint64_t&>(word)).load(std::memory_order_acquire) == token;
}

// Looks all the time until a kernel has written the token or the time is over, and says which it was.
bool HasTokenWithin(const uint64_t& word, uint64_t token, std::chrono::microseconds time) noexcept;

// An error if the token is not there although all kernels have ended.
Status CheckReported(const uint64_t& word, uint64_t token) noexcept;

// Waits for the token of a kernel on `device`, whatever its stream. Calls CUDA only if it takes milliseconds, so the
// current stream may be captured meanwhile.
Status AwaitToken(const uint64_t& word, uint64_t token, int device) noexcept;

}  // namespace raggrad::cuda
