// Pinned host memory for what a GPU reports to a waiting thread. Internal to the CUDA library.
#pragma once

#include <cstdint>

namespace raggrad::cuda {

// Pinned host memory of this thread, for what is read back; kWords of it. Null if there is none. Zero when the thread
// first asks; it had another thread before, and the next one has it after this.
inline constexpr int64_t kWords = 16;
uint64_t* PinnedWords() noexcept;

// What a kernel writes there last, for the host to know that the rest is there. No other call of the process has the
// same, so that what other calls left there, of other threads too, is never taken for the answer. Never 0.
uint64_t NewToken() noexcept;

}  // namespace raggrad::cuda
