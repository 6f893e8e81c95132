// Pinned host memory for reports of kernels to a waiting thread. Internal to the CUDA library.
#pragma once

#include <cstdint>

namespace raggrad::cuda {

// kWords words of pinned host memory for the calling thread; null if there is no memory. They are zero at the thread's
// first call. When a thread ends, a later one gets its words.
inline constexpr int64_t kWords = 16;
uint64_t* PinnedWords() noexcept;

// A word that a kernel writes last, which tells the host that the rest of the report is complete. It is unique in the
// process and never 0, so that words left by other calls and threads are never taken for the report.
uint64_t NewToken() noexcept;

}  // namespace raggrad::cuda
