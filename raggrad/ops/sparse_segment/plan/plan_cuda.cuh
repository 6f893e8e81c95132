// Making plans in device memory. All functions queue work on the call's stream; only Await waits for it.
#pragma once

#include "raggrad/cuda/call.cuh"
#include "raggrad/ops/sparse_segment/fault.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/plan/device_plan.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::sparse_segment::on_cuda {

using cuda::Call;
using cuda::UncapturedCall;

// Ids that nobody has to store: that of position i is i.
struct OwnPositions {
  __device__ int64_t operator[](int64_t i) const { return i; }
};
// The segments of contributions, as ids.
struct SegmentsOf {
  const Contribution* contributions;
  __device__ int64_t operator[](int64_t i) const { return contributions[i].segment; }
};

// Indices or segment ids of any of these kinds.
class Ids {
 public:
  // int32 or int64. Without data they are OwnPositions.
  explicit Ids(const TensorView& view) noexcept
      : data_(view.data),
        kind_(view.data == nullptr          ? kOwnPositions
              : view.dtype == DType::kInt64 ? kInt64
                                            : kInt32) {}
  explicit Ids(const SegmentsOf& ids) noexcept : data_(ids.contributions), kind_(kSegments) {}

  // Calls f(ids) with ids whose kind the compiler knows: kernels that read many of them are made for each.
  template <class F>
  auto Visit(const F& f) const noexcept {
    switch (kind_) {
      case kInt32:
        return f(static_cast<const int32_t*>(data_));
      case kInt64:
        return f(static_cast<const int64_t*>(data_));
      case kSegments:
        return f(SegmentsOf{static_cast<const Contribution*>(data_)});
      default:
        return f(OwnPositions{});
    }
  }

  __device__ int64_t operator[](int64_t i) const {
    int64_t id[1];
    Load<1>(i, 1, id);
    return id[0];
  }
  // Loads ids first, first + kStep, ..., `count` of them, all in flight at once.
  template <int kStep, int kMost>
  __device__ void Load(int64_t first, int count, int64_t (&ids)[kMost]) const {
    const auto load = [&](const auto& from) {
#pragma unroll
      for (int k = 0; k < kMost; ++k) {
        if (k < count) ids[k] = from[first + k * kStep];
      }
    };
    switch (kind_) {
      case kInt32:
        return load(static_cast<const int32_t*>(data_));
      case kInt64:
        return load(static_cast<const int64_t*>(data_));
      case kSegments:
        return load(SegmentsOf{static_cast<const Contribution*>(data_)});
      default:
        return load(OwnPositions{});
    }
  }

 private:
  const void* data_;
  enum Kind : uint8_t { kOwnPositions, kInt32, kInt64, kSegments } kind_;
};

__device__ inline bool InRange(int64_t id, int64_t limit) {
  return static_cast<uint64_t>(id) < static_cast<uint64_t>(limit);
}
// Replaces a bad id by 0, so that nothing is read or written out of bounds before the id is reported.
__device__ inline uint32_t OrZero(int64_t id, int64_t limit) {
  return InRange(id, limit) ? static_cast<uint32_t>(id) : 0;
}

// Destinations for copies of the ids; each null if not wanted.
struct IdCopies {
  int32_t* indices = nullptr;
  int32_t* segment_ids = nullptr;
};

// Destination of the report on the ids: device memory for a PaddedReport, or pinned memory that the host polls.
struct ReportTo {
  PaddedReport* report = nullptr;  // null: nowhere
  uint64_t token = 0;              // written last: who sees it sees the whole report. 0: only a PaddedReport is written
  PaddedForm form = {};
  int64_t max_unique = 0;
  bool must_ascend = false;  // segment ids that do not are a fault

  // Pinned memory of this thread. A call that sends a report there has to await it.
  static Result<ReportTo> ThisThread() noexcept;
  // Those words of pinned memory; RESOURCE_EXHAUSTED if there are none.
  static Result<ReportTo> Words(uint64_t* words) noexcept;
  // Waits for the report. Some microseconds faster than waiting for the stream and copying.
  Result<Report> Await(const UncapturedCall& call) const noexcept;
  // The same, or the error that the report describes.
  Result<Report> Await(const UncapturedCall& call, const SegmentIds& ids) const noexcept;
};

// UNIMPLEMENTED if there are too many ids for 32 bits, or, if segments are counted or summed, too many segments.
Status CheckFitsGpu(const SegmentIds& ids, bool needs_segments) noexcept;

// Parts of a plan that only some calls need.
struct PlanParts {
  bool counts;     // ids per segment
  bool positions;  // 4 bytes per id
};

// The segments of bags, made from their offsets.
struct BagSegments {
  int32_t* segment_ids;  // [n]
  int64_t* starts;       // [num_segments + 1]
};

// Queues the making of a plan; its order stays unset. A report without the count goes to `checked` before the ids are
// sorted. With positions, contributions have these in place
// of segments, and the plan's array of positions is not filled: who puts the segments back does that. Bad ids become 0.
// n must be positive, and table_rows, too, unless ids are dropped. ids.segment_ids of bags are those that `bags` gets.
// UNIMPLEMENTED for sizes that do not fit in 32 bits.
Result<Plan> QueuePlan(const Call& call, const SegmentIds& ids, const PlanParts& parts, const IdCopies& copies,
                       const ReportTo& to, const BagSegments& bags = {}, const ReportTo& checked = {}) noexcept;

inline SegmentTrend OrderIn(const Report& report) noexcept {
  return report.descending == 0 ? SegmentTrend::kAscending : SegmentTrend::kDescending;
}

// Queues a stable sort of positions by segment: row is the segment, segment the position. Kernels do nothing if the
// word at only_if is 0; null: they always sort. n and num_segments must be positive.
Result<Plan> QueueBySegment(const Call& call, const SegmentIds& ids, const uint32_t* only_if) noexcept;

// Queues a stable sort of ids by their rows, which mostly ascend: that costs 8 us then, not 38, for a million. A report
// without the count goes to `checked` before. With positions, plan.positions gets them, and contributions their
// segments, too. Bad ids that are not left out become 0. n and table_rows must be positive.
Result<Plan> QueueByRow(const Call& call, const SegmentIds& ids, bool positions, const ReportTo& checked) noexcept;

// Queues only a report, for ids that make no contributions.
Status QueueEmptyReport(const Call& call, const SegmentIds& ids, const ReportTo& to) noexcept;

}  // namespace raggrad::sparse_segment::on_cuda
