// Magnitudes of contributions, which kReproducible has to know before it sums a row (core/sum_grid.h).
#pragma once

#include "raggrad/cuda/arithmetic.cuh"
#include "raggrad/cuda/device.cuh"
#include "raggrad/ops/sparse_segment/grad/row_sink.cuh"

namespace raggrad::sparse_segment::on_cuda {

// The larger of `largest` and |x|, if that is finite. Magnitudes have the order of their bits.
template <class A>
__device__ A LargerFinite(A largest, A x) {
  const A magnitude = fabs(x);
  return magnitude > largest && magnitude - magnitude == 0 ? magnitude : largest;
}

// The smaller of `smallest` and |x|, if x is not 0. NaN changes nothing.
template <class A>
__device__ A SmallerNonzero(A smallest, A x) {
  return x == 0 ? smallest : fmin(smallest, fabs(x));
}

template <class A>
using MagnitudeBits = std::conditional_t<std::is_same_v<A, double>, unsigned long long, unsigned int>;

template <class A>
__device__ MagnitudeBits<A> BitsOfMagnitude(A magnitude) {
  return __builtin_bit_cast(MagnitudeBits<A>, magnitude);
}

// In global or shared memory. Neither may be negative.
template <class A>
__device__ void AtomicLarger(A* largest, A magnitude) {
  atomicMax(reinterpret_cast<MagnitudeBits<A>*>(largest), BitsOfMagnitude(magnitude));
}

// The largest finite product of `factor` and a value of a row whose largest finite magnitude is known. Rounding keeps
// the order, so it is that of the largest value, unless it overflows.
template <class T>
__device__ SumType<T> LargestProduct(const T* row, int64_t width, SumType<T> largest, SumType<T> factor) {
  using A = SumType<T>;
  A product = cuda::Multiply(largest, fabs(factor));
  if (product - product == 0) return product;
  product = 0;
  for (int64_t c = 0; c < width; ++c) product = LargerFinite(product, cuda::Multiply(cuda::Widen(row[c]), factor));
  return product;
}

// Combines the magnitudes of neighbouring lanes, 2^k of them, with f. Each of these lanes gets the result.
template <class A, class F>
__device__ A OverLanes(A magnitude, int lanes, const F& f) {
  const uint32_t mask = lanes == static_cast<int>(cuda::kWarp)
                            ? cuda::kAllLanes
                            : ((1U << lanes) - 1) << (cuda::Lane() & ~(static_cast<unsigned>(lanes) - 1));
  for (int step = lanes / 2; step > 0; step /= 2) magnitude = f(magnitude, __shfl_xor_sync(mask, magnitude, step));
  return magnitude;
}
template <class A>
__device__ A LargestOfLanes(A magnitude, int lanes) {
  return OverLanes(magnitude, lanes, [](A x, A y) { return y > x ? y : x; });
}
template <class A>
__device__ A SmallestOfLanes(A magnitude, int lanes) {
  return OverLanes(magnitude, lanes, [](A x, A y) { return y < x ? y : x; });
}

// A row of the gradient. Both are looked up together.
template <class A>
struct alignas(2 * sizeof(A)) SegmentRow {
  static constexpr bool kHasSmallest = false;

  A factor;   // of its contributions, unless these have their own
  A largest;  // finite magnitude of its values, times the factor
};

// float also has the smallest magnitude that is not 0, if its contributions have no factors of their own. Grids depend
// on exponents alone, so the last 8 bits of the largest magnitude have room for the exponent of the smallest.
template <>
struct alignas(2 * sizeof(float)) SegmentRow<float> {
  static constexpr bool kHasSmallest = true;

  float factor;
  float largest;

  __device__ void PackSmallest(float smallest) {
    largest = __uint_as_float((BitsOfMagnitude(largest) & ~0xffU) | BitsOfMagnitude(smallest) >> 23);
  }
  // As the bits of a float have it.
  __device__ int SmallestExponent() const { return static_cast<int>(BitsOfMagnitude(largest) & 0xffU); }
};

// A row that begins in a group and extends into the next. Aligned, so that it is copied at once.
template <class A>
struct alignas(2 * sizeof(A)) SpanningRow {
  A largest;       // finite magnitude of its contributions
  uint32_t count;  // of its contributions
};

}  // namespace raggrad::sparse_segment::on_cuda
