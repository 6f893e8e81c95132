// Pinned host memory for reports of kernels to a waiting thread. Internal to the CUDA library.
#pragma once

#include <cstdint>

namespace raggrad::cuda {

inline constexpr int64_t kWords = 16;

// kWords words of pinned host memory. Its destructor leaves them to the next block, so no kernel may still write them.
class PinnedBlock {
 public:
  PinnedBlock() noexcept = default;
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;
  ~PinnedBlock();

  // Zero at the first call; null if there is no memory.
  uint64_t* words() noexcept;

 private:
  uint64_t* words_ = nullptr;
};

// The words of the calling thread's own block.
uint64_t* PinnedWords() noexcept;

// A word that a kernel writes last, which tells the host that the rest of the report is complete. It is unique in the
// process and never 0, so that words left by other calls and threads are never taken for the report.
uint64_t NewToken() noexcept;

}  // namespace raggrad::cuda
