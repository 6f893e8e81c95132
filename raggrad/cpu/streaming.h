// Stores of whole cache lines that go to memory past the caches. A usual store makes an x86 processor read the line
// first, which is half of the traffic of scattered writes. Arm's cores see by themselves that a line is written as a
// whole. Internal to the library.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace raggrad::cpu {

inline constexpr int64_t kLineBytes = 64;

inline bool StartsLine(const void* address) noexcept { return reinterpret_cast<uintptr_t>(address) % kLineBytes == 0; }

#if defined(__x86_64__)
inline constexpr bool kStreams = true;

// Copies a line from a cache to memory. Both addresses start a line.
inline void StreamLine(void* to, const void* from) noexcept {
  auto* const out = static_cast<__m128i*>(to);
  const auto* const in = static_cast<const __m128i*>(from);
  const __m128i parts[] = {_mm_load_si128(in), _mm_load_si128(in + 1), _mm_load_si128(in + 2), _mm_load_si128(in + 3)};
  for (int i = 0; i < 4; ++i) _mm_stream_si128(out + i, parts[i]);
}

// Streamed lines are in memory before anything that this thread writes later. To be called before other threads are
// told of them.
inline void EndStreaming() noexcept { _mm_sfence(); }
#else
inline constexpr bool kStreams = false;
inline void StreamLine(void*, const void*) noexcept {}
inline void EndStreaming() noexcept {}
#endif

}  // namespace raggrad::cpu
