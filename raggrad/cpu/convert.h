// Converts half and bfloat16 to float and back, to nearest even. Narrowing keeps a NaN's sign and drops its payload;
// TensorFlow keeps the payload of halves, and NaNs are not compared. The bits are the same on every instruction set
// and, on x86, in every floating-point environment.
//
// Convert<I> is for code that is compiled once per instruction-set level I (the template argument keeps the levels'
// copies apart, see cmake/raggrad_targets.cmake); BaselineConvert for all other code. Only compiler builtins are used:
// a helper from the standard library could be emitted here as AVX-512 code and then be linked into the whole program.
#pragma once

#include <cstdint>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "raggrad/core/dtype.h"
#include "raggrad/core/isa.h"

namespace raggrad::cpu {

template <Isa I>
struct Convert {
  static float Widen(BFloat16 x) noexcept { return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16); }

  static BFloat16 NarrowToBFloat16(float x) noexcept {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x);
    const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    const uint32_t nan = (bits & 0x80000000) | 0x7fc00000;
    return {static_cast<uint16_t>(((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded) >> 16)};
  }

#if defined(__aarch64__)
  static float Widen(Half x) noexcept { return static_cast<float>(__builtin_bit_cast(__fp16, x.bits)); }
  static Half NarrowToHalf(float x) noexcept {
    const uint16_t nan = static_cast<uint16_t>((__builtin_bit_cast(uint32_t, x) >> 16 & 0x8000) | 0x7e00);
    const uint16_t half = __builtin_bit_cast(uint16_t, static_cast<__fp16>(x));
    return {(half & 0x7fff) > 0x7c00 ? nan : half};
  }
#else
  static float Widen(Half x) noexcept {
    const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
    const uint32_t magnitude = x.bits & 0x7fff;
    uint32_t bits = (magnitude << 13) + (uint32_t{127 - 15} << 23);
    if (magnitude >= 0x7c00) {
      bits = 0x7f800000 | (magnitude << 13) | (magnitude > 0x7c00 ? 0x400000U : 0U);
    } else if (magnitude < 0x0400) {
      bits = __builtin_bit_cast(uint32_t, static_cast<float>(magnitude) * 0x1p-24F);  // exact
    }
    return __builtin_bit_cast(float, bits | sign);
  }

  static Half NarrowToHalf(float x) noexcept {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x);
    const uint32_t magnitude = bits & 0x7fffffff;
    uint32_t half;
    if (magnitude >= 0x47800000) {  // 2^16 and above, infinity, NaN
      half = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
    } else if (magnitude >= 0x38800000) {  // 2^-14 and above; rounding up to 2^16 carries into infinity
      half = RoundedShift(magnitude - (uint32_t{127 - 15} << 23), 13);
    } else if (magnitude > 0x33000000) {  // above 2^-25; half's subnormals are multiples of 2^-24
      half = RoundedShift((magnitude & 0x7fffff) | 0x800000, 126 - (magnitude >> 23));
    } else {
      half = 0;
    }
    return {static_cast<uint16_t>(half | ((bits >> 16) & 0x8000))};
  }
#endif

  // Rows. Compilers vectorise the loops over bfloat16, but those over half only on aarch64: x86 needs F16C intrinsics.
  static void WidenRow(const BFloat16* in, float* out, int64_t n) noexcept {
    for (int64_t i = 0; i < n; ++i) out[i] = Widen(in[i]);
  }
  static void NarrowRow(const float* in, BFloat16* out, int64_t n) noexcept {
    for (int64_t i = 0; i < n; ++i) out[i] = NarrowToBFloat16(in[i]);
  }
  static void WidenRow(const Half* in, float* out, int64_t n) noexcept {
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
      _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
    }
#endif
    for (; i < n; ++i) out[i] = Widen(in[i]);
  }
  static void NarrowRow(const float* in, Half* out, int64_t n) noexcept {
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
      const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), WithoutPayload(halves));
    }
#endif
    for (; i < n; ++i) out[i] = NarrowToHalf(in[i]);
  }

 private:
  // bits / 2^shift, to nearest even. 0 < shift < 32.
  static uint32_t RoundedShift(uint32_t bits, uint32_t shift) noexcept {
    return (bits + (uint32_t{1} << (shift - 1)) - 1 + (bits >> shift & 1)) >> shift;
  }
#if defined(__F16C__)
  // F16C keeps the upper bits of a NaN's payload.
  static __m128i WithoutPayload(__m128i halves) noexcept {
    const __m128i magnitude = _mm_and_si128(halves, _mm_set1_epi16(0x7fff));
    const __m128i is_nan = _mm_cmpgt_epi16(magnitude, _mm_set1_epi16(0x7c00));
    return _mm_andnot_si128(_mm_and_si128(is_nan, _mm_set1_epi16(0x01ff)), halves);
  }
#endif
};

using BaselineConvert = Convert<kBaselineIsa>;

}  // namespace raggrad::cpu
