// How plans are made in device memory. Everything is queued on the call's stream; only Await waits for it.
#pragma once

#include "raggrad/cuda/call.cuh"
#include "raggrad/ops/sparse_segment/fault.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/plan/device_plan.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::sparse_segment::on_cuda {

using cuda::Call;
using cuda::UncapturedCall;

// Indices or segment ids: of either type, or, without data, position i has id i.
struct Ids {
  const void* data;
  bool wide;

  explicit Ids(const TensorView& view) noexcept : data(view.data), wide(view.dtype == DType::kInt64) {}
  __device__ int64_t operator[](int64_t i) const {
    if (data == nullptr) return i;
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
  // Ids first, first + kStep, ..., `count` of them at most, all on their way at once.
  template <int kStep, int kMost>
  __device__ void Load(int64_t first, int count, int64_t (&ids)[kMost]) const {
    const auto load = [&](const auto* typed) {
#pragma unroll
      for (int k = 0; k < kMost; ++k) {
        if (k < count) ids[k] = typed[first + k * kStep];
      }
    };
    if (data == nullptr) {
      for (int k = 0; k < kMost; ++k) ids[k] = first + k * kStep;
    } else if (wide) {
      load(static_cast<const int64_t*>(data));
    } else {
      load(static_cast<const int32_t*>(data));
    }
  }
};

// Where copies of the ids go, if they are wanted.
struct IdCopies {
  int32_t* indices = nullptr;
  int32_t* segment_ids = nullptr;
};

// Where the report on the ids goes: into device memory, or into memory that the host waits at.
struct ReportTo {
  Report* report;
  uint64_t token;                                    // comes last, so that whoever sees it sees the report
  SegmentCombiner combiner = SegmentCombiner::kSum;  // CheckPadded names the operator by it

  // Pinned memory of this thread. A call that sends a report there has to wait for it.
  static Result<ReportTo> ThisThread() noexcept;
  // The report, or the error that is in it. Takes a few microseconds less than waiting for the stream and a copy.
  Result<Report> Await(const UncapturedCall& call, const SegmentIds& ids) const noexcept;
};

// UNIMPLEMENTED if there are too many ids, or too many segments where they are counted or summed.
Status CheckFitsGpu(const SegmentIds& ids, bool needs_segments) noexcept;

// The plan of the ids; num_unique stays unset. Bad ids count as 0. n, table_rows > 0. UNIMPLEMENTED for sizes that do
// not fit in 32 bits.
Result<Plan> QueuePlan(const Call& call, const SegmentIds& ids, bool count_segments, const IdCopies& copies,
                       const ReportTo& to) noexcept;

// Only the report on ids that make no contributions, in device memory.
Status QueueEmptyReport(const Call& call, const SegmentIds& ids, const ReportTo& to) noexcept;

}  // namespace raggrad::sparse_segment::on_cuda
