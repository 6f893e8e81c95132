// Pooling of floats with weights, and with Accumulation::kReproducible. Internal to the family.
#pragma once

#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_segment/plan/plan_cuda.cuh"
#include "raggrad/ops/sparse_segment/weights/device_weights.cuh"

namespace raggrad::sparse_segment::on_cuda {

template <class T>
struct FloatPoolJob {
  SegmentCombiner combiner;
  const T* data;  // [table_rows, width]
  int64_t width;
  Ids indices;            // in range
  const int64_t* starts;  // [num_segments + 1]: segment s has the ids [starts[s], starts[s + 1])
  int64_t num_segments;
  T* output;  // [num_segments, width]
  DeviceWeights weights;
  WeightDivisor divisor;
  const SumType<T>* divisors;  // D(s) of each segment for PoolReproducibly; null: the numbers of ids decide

  __device__ const T* row(int64_t id) const { return data + indices[id] * width; }
  // Whether a lane can load and store that many columns at once.
  bool IsAligned(int columns) const noexcept {
    const size_t bytes = static_cast<size_t>(columns) * sizeof(T);
    return width % columns == 0 && reinterpret_cast<uintptr_t>(data) % bytes == 0 &&
           reinterpret_cast<uintptr_t>(output) % bytes == 0;
  }
};

// The lanes of a team, which pools a segment: as many as have columns, up to a warp. A power of two.
template <int kColumns>
int LanesFor(int64_t width) noexcept {
  int lanes = 1;
  while (lanes < cuda::kTuning.pool_max_lanes_per_team && lanes * kColumns < width) lanes *= 2;
  return lanes;
}

// In the order of segment_pooling.h.
template <class T>
Status PoolWeighted(const cuda::Call& call, const FloatPoolJob<T>& job) noexcept;

// With the arithmetic of core/sum_grid.h.
template <class T>
Status PoolReproducibly(const cuda::Call& call, const FloatPoolJob<T>& job) noexcept;

}  // namespace raggrad::sparse_segment::on_cuda
