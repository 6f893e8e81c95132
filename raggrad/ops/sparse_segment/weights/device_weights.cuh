// Weights in device memory, with the arithmetic of segment_pooling.h. Internal to the family.
#pragma once

#include "raggrad/cuda/arithmetic.cuh"
#include "raggrad/ops/sparse_segment/segment_pooling.h"

namespace raggrad::sparse_segment::on_cuda {

// In the type of the rows or float32. A call has one type, so the branches cost next to nothing.
struct DeviceWeights {
  const void* values = nullptr;  // null: there are none
  DType dtype = {};

  DeviceWeights() noexcept = default;
  explicit DeviceWeights(const TensorView& view) noexcept : values(view.data), dtype(view.dtype) {}

  // The weight of id i in A, the type of sums.
  template <class A>
  __device__ A Get(int64_t i) const {
    if constexpr (std::is_same_v<A, double>) {
      return dtype == DType::kFloat64 ? As<double>(i) : static_cast<double>(As<float>(i));
    } else {
      return dtype == DType::kFloat32 ? As<float>(i)
             : dtype == DType::kHalf  ? cuda::Widen(As<Half>(i))
                                      : cuda::Widen(As<BFloat16>(i));
    }
  }

 private:
  template <class W>
  __device__ W As(int64_t i) const {
    return static_cast<const W*>(values)[i];
  }
};

// The divisor of a segment of n ids, whatever their weights.
template <class A>
__device__ A CountDivisor(SegmentCombiner combiner, int64_t n) {
  if (combiner == SegmentCombiner::kSum) return 1;
  return combiner == SegmentCombiner::kMean ? static_cast<A>(n) : static_cast<A>(sqrt(static_cast<double>(n)));
}

// The share of a weight in the sum that a divisor comes from.
template <class A>
__device__ A DivisorTerm(SegmentCombiner combiner, A weight) {
  return combiner == SegmentCombiner::kSqrtN ? cuda::Multiply(weight, weight) : weight;
}

// The divisor of that sum.
template <class A>
__device__ A WeightsDivisor(SegmentCombiner combiner, A sum) {
  return combiner == SegmentCombiner::kSqrtN ? sqrt(sum) : sum;
}

// x / divisor; 0 if the divisor is 0.
template <class A>
__device__ A DivideOrZero(A x, A divisor) {
  return divisor == A{0} ? A{0} : cuda::Divide(x, divisor);
}

}  // namespace raggrad::sparse_segment::on_cuda
