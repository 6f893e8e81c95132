// Arithmetic with the CPU's bits. The library is compiled with -fmad=false, -ftz=true and IEEE division and square
// root, which is enough for float. GPUs cannot flush subnormal doubles, so Flush() does it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "raggrad/core/sum_type.h"

namespace raggrad::cuda {

template <class T>
__device__ inline SumType<T> Widen(T x) {
  if constexpr (std::is_same_v<T, Half>) {
    return __half2float(__ushort_as_half(x.bits));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
  } else {
    return x;
  }
}

template <class T>
__device__ inline T Narrow(SumType<T> x) {
  if constexpr (std::is_same_v<T, Half>) {
    return {__half_as_ushort(__float2half_rn(x))};
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  } else {
    return x;
  }
}

// A float that is not subnormal as a double. The compiler's own conversion flushes x first, at the price of a
// multiplication.
__device__ inline double ToDouble(float x) {
  double result;
  asm("cvt.f64.f32 %0, %1;" : "=d"(result) : "f"(x));
  return result;
}

// x rounded to float. The compiler's own conversion flushes the result, which takes a comparison of doubles; who adds
// to it gets that for nothing.
__device__ inline float ToFloatUnflushed(double x) {
  float result;
  asm("cvt.rn.f32.f64 %0, %1;" : "=f"(result) : "d"(x));
  return result;
}

// Turns a subnormal double into a zero of the same sign.
template <class A>
__device__ inline A Flush(A x) {
  if constexpr (std::is_same_v<A, double>) {
    return fabs(x) < 0x1p-1022 ? copysign(0.0, x) : x;
  } else {
    return x;
  }
}

template <class A>
__device__ inline A Add(A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<std::make_unsigned_t<A>>(a) + static_cast<std::make_unsigned_t<A>>(b));
  } else {
    return Flush(Flush(a) + Flush(b));
  }
}

// Computes compute(x), a product or quotient of x, and flushes it. If it was rounded up to the smallest normal number,
// the CPU judges the result as if exponents had no limit: that of 2^100 x tells.
template <class A, class F>
__device__ inline A FlushRounded(A x, const F& compute) {
  const A rounded = compute(x);
  if constexpr (std::is_same_v<A, double>) {
    if (fabs(rounded) == 0x1p-1022 && fabs(compute(x * 0x1p100)) < 0x1p-922) return copysign(0.0, rounded);
  }
  return Flush(rounded);
}

template <class A>
__device__ inline A Multiply(A a, A b) {
  return FlushRounded(Flush(a), [b = Flush(b)](A x) { return x * b; });
}

template <class A>
__device__ inline A Divide(A a, A b) {
  return FlushRounded(Flush(a), [b = Flush(b)](A x) { return x / b; });
}

}  // namespace raggrad::cuda
