// Vectors for sums of Accumulation::kReproducible, which are double while their terms may be narrower. Compiled per
// instruction-set level, so everything here is a template of the level or always inlined.
#pragma once

#include <cstdint>
#include <type_traits>

#include "raggrad/core/isa.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/cpu/convert.h"
#include "raggrad/ops/sparse_segment/row_ops.h"

namespace raggrad::sparse_segment {

// The columns whose terms of type A are loaded together. They fill kParts vectors of double: one, or two where a vector
// has 16 bytes and would be half empty.
template <Isa I, class A>
struct Lanes {
  using Doubles = typename Vector<I, double>::Type;
  static constexpr int64_t kDoubles = Vector<I, double>::kLanes;
  static constexpr int kParts = sizeof(Doubles) == 16 && sizeof(A) == 4 ? 2 : 1;
  static constexpr int64_t kCount = kParts * kDoubles;
  typedef A Values __attribute__((vector_size(kCount * sizeof(A))));  // NOLINT: an alias cannot have the attribute
};

// Part `part` of a vector, widened, with intrinsics where g++ 12 would take it apart and put it together again. Those
// of AVX-512 take a mask of all lanes, because g++ 12 warns about the ones without a mask.
template <Isa I>
[[gnu::always_inline]] inline auto ToDouble(typename Lanes<I, float>::Values x, [[maybe_unused]] int part) noexcept {
  using V = typename Lanes<I, float>::Doubles;
#if defined(__AVX512F__)
  return reinterpret_cast<V>(_mm512_maskz_cvtps_pd(0xff, reinterpret_cast<__m256>(x)));
#elif defined(__AVX2__)
  return reinterpret_cast<V>(_mm256_cvtps_pd(reinterpret_cast<__m128>(x)));
#elif defined(__aarch64__)
  const auto floats = reinterpret_cast<float32x4_t>(x);
  return reinterpret_cast<V>(part == 0 ? vcvt_f64_f32(vget_low_f32(floats)) : vcvt_high_f64_f32(floats));
#else
  const auto floats = reinterpret_cast<__m128>(x);
  return reinterpret_cast<V>(_mm_cvtps_pd(part == 0 ? floats : _mm_movehl_ps(floats, floats)));
#endif
}

// The vector of all parts, rounded.
template <Isa I>
[[gnu::always_inline]] inline auto ToFloat(const typename Lanes<I, float>::Doubles* parts) noexcept {
  using V = typename Lanes<I, float>::Values;
#if defined(__AVX512F__)
  return reinterpret_cast<V>(_mm512_maskz_cvtpd_ps(0xff, reinterpret_cast<__m512d>(parts[0])));
#elif defined(__AVX2__)
  return reinterpret_cast<V>(_mm256_cvtpd_ps(reinterpret_cast<__m256d>(parts[0])));
#elif defined(__aarch64__)
  const float32x2_t low = vcvt_f32_f64(reinterpret_cast<float64x2_t>(parts[0]));
  return reinterpret_cast<V>(vcvt_high_f32_f64(low, reinterpret_cast<float64x2_t>(parts[1])));
#else
  const __m128 low = _mm_cvtpd_ps(reinterpret_cast<__m128d>(parts[0]));
  return reinterpret_cast<V>(_mm_movelh_ps(low, _mm_cvtpd_ps(reinterpret_cast<__m128d>(parts[1]))));
#endif
}

// x * y + z, rounded once, on levels that have it.
template <Isa I>
[[gnu::always_inline]] inline auto FusedAdd(typename Vector<I, double>::Type x, typename Vector<I, double>::Type y,
                                            typename Vector<I, double>::Type z) noexcept {
  using V [[maybe_unused]] = typename Vector<I, double>::Type;
#if defined(__AVX512F__)
  return reinterpret_cast<V>(
      _mm512_fmadd_pd(reinterpret_cast<__m512d>(x), reinterpret_cast<__m512d>(y), reinterpret_cast<__m512d>(z)));
#elif defined(__AVX2__)
  return reinterpret_cast<V>(
      _mm256_fmadd_pd(reinterpret_cast<__m256d>(x), reinterpret_cast<__m256d>(y), reinterpret_cast<__m256d>(z)));
#elif defined(__aarch64__)
  return reinterpret_cast<V>(
      vfmaq_f64(reinterpret_cast<float64x2_t>(z), reinterpret_cast<float64x2_t>(x), reinterpret_cast<float64x2_t>(y)));
#else
  return x * y + z;  // never called: this level divides
#endif
}

// Divides numbers by the same divisor, with the bits of a division. The quotient x * (1 / d) is off by at most two last
// places; one step of correction with fused operations rounds it as a division does (Markstein 1990). A division takes
// 5 to 7 times as long.
template <Isa I>
class Division {
 public:
  using V = typename Vector<I, double>::Type;

  [[gnu::always_inline]] explicit Division(double divisor) noexcept
      : divisor_(divisor), reciprocal_(1.0 / divisor), divides_(IsExtreme(divisor)) {}

  [[gnu::always_inline]] V operator()(V x) const noexcept {
    if (!kHasFusedAdd || divides_) return x / divisor_;
    const V quotient = x * reciprocal_;
    const V rest = FusedAdd<I>(-quotient, V{} + divisor_, x);
    const V corrected = FusedAdd<I>(rest, V{} + reciprocal_, quotient);
    return rest == rest ? corrected : quotient;  // infinity and NaN have no rest
  }

 private:
  static constexpr bool kHasFusedAdd = I != Isa::kX86V1;
  // Whether reciprocal, quotients or rests of sums of floats could leave the range of normal numbers.
  static bool IsExtreme(double divisor) noexcept {
    const double magnitude = divisor < 0 ? -divisor : divisor;
    return !(magnitude > 0x1p-200 && magnitude < 0x1p200);
  }

  double divisor_;
  double reciprocal_;
  bool divides_;
};

// The upper halves of floats, in any order.
template <Isa I>
[[gnu::always_inline]] inline auto UpperHalves(const typename Lanes<I, float>::Values& x,
                                               const typename Lanes<I, float>::Values& y) noexcept {
#if defined(__aarch64__)
  return vuzp2q_u16(reinterpret_cast<uint16x8_t>(x), reinterpret_cast<uint16x8_t>(y));
#else
  typedef uint32_t Bits __attribute__((vector_size(sizeof(x))));  // NOLINT: an alias cannot have the attribute
  return reinterpret_cast<Bits>(x) >> 16 | (reinterpret_cast<Bits>(y) & 0xffff0000);
#endif
}

// Loads the terms of some columns.
template <Isa I, class T>
[[gnu::always_inline]] inline auto LoadLanes(const T* values) noexcept {
  using Values = typename Lanes<I, SumType<T>>::Values;
  if constexpr (kWidensInMemory<I, T>) {
    float wide[Lanes<I, float>::kCount];
    cpu::Convert<I>::WidenRow(values, wide, Lanes<I, float>::kCount);
    return LoadAs<Values>(wide);
  } else {
    return LoadAs<Values>(values);
  }
}

}  // namespace raggrad::sparse_segment
