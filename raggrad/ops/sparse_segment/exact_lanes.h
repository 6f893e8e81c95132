// Vectors for sums of Accumulation::kReproducible, which are double while their terms may be narrower. Compiled per
// instruction-set level, so everything here is a template of the level or always inlined.
#pragma once

#include <cstdint>
#include <type_traits>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "raggrad/core/isa.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/cpu/convert.h"
#include "raggrad/ops/sparse_segment/row_ops.h"

namespace raggrad::sparse_segment {

// As many A as there are doubles in a vector register of the level.
template <Isa I, class A>
struct Lanes {
  static constexpr int64_t kCount = Vector<I, double>::kLanes;
  typedef A Type __attribute__((vector_size(kCount * sizeof(A))));  // NOLINT: an alias cannot have the attribute
};

// Widens a vector, with intrinsics where g++ 12 would take it apart and put it together again. Those of AVX-512 take a
// mask of all lanes, because g++ 12 warns about the ones without a mask.
template <Isa I>
[[gnu::always_inline]] inline typename Lanes<I, double>::Type ToDouble(typename Lanes<I, float>::Type x) noexcept {
  using V = typename Lanes<I, double>::Type;
#if defined(__AVX512F__)
  return reinterpret_cast<V>(_mm512_maskz_cvtps_pd(0xff, reinterpret_cast<__m256>(x)));
#elif defined(__AVX2__)
  return reinterpret_cast<V>(_mm256_cvtps_pd(reinterpret_cast<__m128>(x)));
#else
  return __builtin_convertvector(x, V);
#endif
}

template <Isa I>
[[gnu::always_inline]] inline typename Lanes<I, float>::Type ToFloat(typename Lanes<I, double>::Type x) noexcept {
  using V = typename Lanes<I, float>::Type;
#if defined(__AVX512F__)
  return reinterpret_cast<V>(_mm512_maskz_cvtpd_ps(0xff, reinterpret_cast<__m512d>(x)));
#elif defined(__AVX2__)
  return reinterpret_cast<V>(_mm256_cvtpd_ps(reinterpret_cast<__m256d>(x)));
#else
  return __builtin_convertvector(x, V);
#endif
}

// Loads as many values as there are doubles in a vector, widened to the type of contributions.
template <Isa I, class T>
[[gnu::always_inline]] inline typename Lanes<I, SumType<T>>::Type LoadLanes(const T* values) noexcept {
  using Values = typename Lanes<I, SumType<T>>::Type;
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, BFloat16>) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values));
    return reinterpret_cast<Values>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
#elif defined(__AVX2__)
  if constexpr (std::is_same_v<T, BFloat16>) {
    const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(values));
    return reinterpret_cast<Values>(_mm_slli_epi32(_mm_cvtepu16_epi32(bits), 16));
  }
#endif
  if constexpr (kWidensInMemory<I, T>) {
    float wide[Lanes<I, float>::kCount];
    cpu::Convert<I>::WidenRow(values, wide, Lanes<I, float>::kCount);
    return LoadAs<Values>(wide);
  } else {
    return LoadAs<Values>(values);
  }
}

}  // namespace raggrad::sparse_segment
