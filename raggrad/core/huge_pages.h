// AskForHugePages: for large outputs whose memory a framework allocated. Internal to the library.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace raggrad {

// Asks for 2 MiB pages in a block of at least 4 MiB that nobody touched yet; smaller ones are left alone. The first
// touch of a 4 KiB page costs more than writing to it: 187 MB of a gradient take 50 ms instead of 100. Only a hint.
inline void AskForHugePages(void* data, size_t bytes) noexcept {
  constexpr size_t kLeast = size_t{4} << 20;
  constexpr uintptr_t kPage = 4096;
  if (bytes < kLeast) return;
  const auto begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) & ~(kPage - 1);
  const auto end = (reinterpret_cast<uintptr_t>(data) + bytes) & ~(kPage - 1);
  [[maybe_unused]] const int refused = madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace raggrad
