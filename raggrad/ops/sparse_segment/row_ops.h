// Operations that the row loops of gradients and forwards share. These loops are compiled per instruction-set level, so
// everything here is a template of the level or always inlined.
#pragma once

#include <cstdint>
#include <type_traits>

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

// Vectors of the bits of bfloat16, before and after they are widened.
template <int64_t kLanes>
struct BFloat16Bits {
  typedef uint16_t Narrow __attribute__((vector_size(kLanes * 2)));  // NOLINT: as above
  typedef uint32_t Wide __attribute__((vector_size(kLanes * 4)));    // NOLINT
};

// Whether LoadAs takes half: on the levels of x86 that have F16C.
template <Isa I>
inline constexpr bool kLoadsHalf = I == Isa::kX86V3 || I == Isa::kX86V4;

// Whether values of type T are widened in memory before vectors of them are loaded.
template <Isa I, class T>
inline constexpr bool kWidensInMemory = std::is_same_v<T, Half> && !kLoadsHalf<I>;

#if defined(__F16C__)
// Loads a vector of half. The AVX-512 intrinsic takes a mask of all lanes: g++ 12 warns about the one without a mask.
template <class V>
[[gnu::always_inline]] inline V LoadHalf(const Half* values) noexcept {
  [[maybe_unused]] const auto* const halves = reinterpret_cast<const __m128i*>(values);
  if constexpr (sizeof(V) == 16) {
    return reinterpret_cast<V>(_mm_cvtph_ps(_mm_loadl_epi64(halves)));
  } else if constexpr (sizeof(V) == 32) {
    return reinterpret_cast<V>(_mm256_cvtph_ps(_mm_loadu_si128(halves)));
  } else {
#if defined(__AVX512F__)
    const auto* const all = reinterpret_cast<const __m256i*>(values);
    return reinterpret_cast<V>(_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(all)));
#endif
  }
}
#endif

// Loads a vector of values that need no conversion, or of 16-bit types, which widen in registers.
template <class V, class T>
[[gnu::always_inline]] inline V LoadAs(const T* values) noexcept {
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, Half>) return LoadHalf<V>(values);
#else
  static_assert(!std::is_same_v<T, Half>);
#endif
  V vector;
  if constexpr (std::is_same_v<T, BFloat16>) {
    constexpr int64_t kLanes = sizeof(V) / sizeof(float);
    typename BFloat16Bits<kLanes>::Narrow narrow;
    __builtin_memcpy(&narrow, values, sizeof(narrow));
    const auto wide = __builtin_convertvector(narrow, typename BFloat16Bits<kLanes>::Wide) << 16;
    __builtin_memcpy(&vector, &wide, sizeof(vector));
  } else {
    __builtin_memcpy(&vector, values, sizeof(vector));
  }
  return vector;
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
