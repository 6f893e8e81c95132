// How plans are made in device memory. Everything is queued on the call's stream; only ReadPlan waits for it.
#pragma once

#include "raggrad/cuda/call.cuh"
#include "raggrad/ops/sparse_segment/device_plan.h"
#include "raggrad/ops/sparse_segment/fault.h"

namespace raggrad::sparse_segment::cuda {

using ::raggrad::cuda::Call;

// Indices or segment ids: of either type, or, without data, position i has id i.
struct Ids {
  const void* data;
  bool wide;

  explicit Ids(const TensorView& view) noexcept : data(view.data), wide(view.dtype == DType::kInt64) {}
  __device__ int64_t operator[](int64_t i) const {
    if (data == nullptr) return i;
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

// Where copies of the ids go, if they are wanted.
struct IdCopies {
  int32_t* indices = nullptr;
  int32_t* segment_ids = nullptr;
};

// The plan of the problem's ids; num_rows stays unset. Bad ids count as 0. `report` is in device memory. n, dim0 > 0.
// UNIMPLEMENTED for sizes that do not fit in 32 bits.
Result<Plan> QueuePlan(const Call& call, const Problem& problem, bool count_segments, const IdCopies& copies,
                       Report* report) noexcept;

// Only the report of a problem that has no contributions.
Status QueueEmptyReport(const Call& call, const Problem& problem, Report* report) noexcept;

// The report, or the error that is in it.
Result<Report> ReadReport(const Call& call, const Problem& problem, const Report* report) noexcept;

}  // namespace raggrad::sparse_segment::cuda
