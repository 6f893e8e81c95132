// Operations that the row loops of gradients and forwards share. These loops are compiled per instruction-set level, so
// everything here is a template of the level or always inlined.
#pragma once

#include <cstdint>
#include <type_traits>
#if defined(__aarch64__)
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

#include "raggrad/core/dtype.h"
#include "raggrad/core/isa.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/cpu/convert.h"

namespace raggrad::sparse_segment {

// Columns that the gradients sum together: 256 bytes of sums of type A, which fit the vector registers.
template <class A>
inline constexpr int64_t kStrip = 256 / sizeof(A);

// A vector register of the level, full of A.
template <Isa I, class A>
struct Vector {
  static constexpr int64_t kBytes = I == Isa::kX86V4 ? 64 : I == Isa::kX86V3 ? 32 : 16;
  static constexpr int64_t kLanes = kBytes / static_cast<int64_t>(sizeof(A));
  typedef A Type __attribute__((vector_size(kBytes)));  // NOLINT: an alias cannot have the attribute
  typedef A InMemory __attribute__((vector_size(kBytes), aligned(sizeof(A)), may_alias));  // NOLINT
};

template <Isa I, class T>
[[gnu::always_inline]] inline SumType<T> Load(T value) noexcept {
  if constexpr (kIsShortFloat<T>) {
    return cpu::Convert<I>::Widen(value);
  } else {
    return value;
  }
}

// Whether LoadAs takes half: all levels but the baseline of x86 can widen it.
template <Isa I>
inline constexpr bool kLoadsHalf = I != Isa::kX86V1;

// Whether values of type T are widened in memory before vectors of them are loaded.
template <Isa I, class T>
inline constexpr bool kWidensInMemory = std::is_same_v<T, Half> && !kLoadsHalf<I>;

// LoadHalf and LoadBFloat16 widen in registers. Compilers would take the vectors apart and put them together again.
// Intrinsics of AVX-512 take a mask of all lanes: g++ 12 warns about the ones without a mask.
#if defined(__aarch64__)
template <class V>
[[gnu::always_inline]] inline V LoadHalf(const Half* values) noexcept {
  float16x4_t halves;
  __builtin_memcpy(&halves, values, sizeof(halves));
  return reinterpret_cast<V>(vcvt_f32_f16(halves));
}

template <class V>
[[gnu::always_inline]] inline V LoadBFloat16(const BFloat16* values) noexcept {
  uint16x4_t bits;
  __builtin_memcpy(&bits, values, sizeof(bits));
  const uint16x4_t zeros = vdup_n_u16(0);  // a zip is twice as fast as a shift that widens (Neoverse V1)
  return reinterpret_cast<V>(vzip1q_u16(vcombine_u16(zeros, zeros), vcombine_u16(bits, zeros)));
}
#else
template <class V>
[[gnu::always_inline]] inline V LoadHalf([[maybe_unused]] const Half* values) noexcept {
  V vector = {};  // the level without F16C never calls this
#if defined(__AVX512F__)
  const auto* const halves32 = reinterpret_cast<const __m256i*>(values);
  if constexpr (sizeof(V) == 64)
    vector = reinterpret_cast<V>(_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(halves32)));
#endif
#if defined(__F16C__)
  const auto* const halves = reinterpret_cast<const __m128i*>(values);
  if constexpr (sizeof(V) == 32) vector = reinterpret_cast<V>(_mm256_cvtph_ps(_mm_loadu_si128(halves)));
  if constexpr (sizeof(V) == 16) vector = reinterpret_cast<V>(_mm_cvtph_ps(_mm_loadl_epi64(halves)));
#endif
  return vector;
}

// A float is a bfloat16 and 16 zero bits below it.
template <class V>
[[gnu::always_inline]] inline V LoadBFloat16(const BFloat16* values) noexcept {
  V vector;
  const auto* const bits = reinterpret_cast<const __m128i*>(values);
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64) {
    const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values));
    const __m512i wide = _mm512_maskz_cvtepu16_epi32(0xffff, narrow);
    vector = reinterpret_cast<V>(_mm512_maskz_slli_epi32(0xffff, wide, 16));
  }
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(V) == 32) {
    vector = reinterpret_cast<V>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(bits)), 16));
  }
#endif
  if constexpr (sizeof(V) == 16) {
    vector = reinterpret_cast<V>(_mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64(bits)));
  }
  return vector;
}
#endif

// Loads a vector of values that need no conversion, or of 16-bit types, which widen in registers.
template <class V, class T>
[[gnu::always_inline]] inline V LoadAs(const T* values) noexcept {
  if constexpr (std::is_same_v<T, Half>) {
    return LoadHalf<V>(values);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return LoadBFloat16<V>(values);
  } else {
    V vector;
    __builtin_memcpy(&vector, values, sizeof(vector));
    return vector;
  }
}

template <Isa I, class T>
[[gnu::always_inline]] inline auto LoadVector(const T* values) noexcept {
  return LoadAs<typename Vector<I, SumType<T>>::Type>(values);
}

template <Isa I, class T>
[[gnu::always_inline]] inline void Store(const SumType<T>* sums, T* out, int64_t columns) noexcept {
  if constexpr (kIsShortFloat<T>) {
    cpu::Convert<I>::NarrowRow(sums, out, columns);
  } else {
    for (int64_t c = 0; c < columns; ++c) out[c] = sums[c];
  }
}

// Prefetches a row that a later id names: rows lie anywhere in memory, but the ids tell early which come next.
template <Isa I, class T>
[[gnu::always_inline]] inline void PrefetchRow(const T* row, int64_t columns) noexcept {
  constexpr int64_t kCacheLine = 64;
  const char* bytes = reinterpret_cast<const char*>(row);
  const int64_t size = columns * static_cast<int64_t>(sizeof(T));
  for (int64_t offset = 0; offset < size; offset += kCacheLine) __builtin_prefetch(bytes + offset);
}

}  // namespace raggrad::sparse_segment
