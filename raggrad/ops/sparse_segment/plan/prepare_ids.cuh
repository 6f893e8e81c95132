// The first step of a plan: makes segments of bags, if there are any, checks the ids, counts the segments and the
// digits of rows, and writes the contributions.
#pragma once

#include "raggrad/ops/bags/find_bags.cuh"
#include "raggrad/ops/sparse_segment/plan/find_rows.cuh"

namespace raggrad::sparse_segment::on_cuda {

using cuda::GlobalThread;

inline constexpr int kPrepareThreads = kTuning.prepare_threads_per_block;
inline constexpr int kPerThread = kTuning.prepare_ids_per_thread;

__device__ inline void NoteFault(Notes* notes, const Fault& fault) {
  atomicMax(&notes->first_fault, ~static_cast<unsigned long long>(fault.Encode()));
}

// Offsets of bags, int32 or int64; null: there are none.
struct Offsets {
  const void* data = nullptr;
  bool wide = false;
  int64_t bags = 0;

  explicit Offsets(const TensorView* view) noexcept {
    if (view != nullptr) *this = Offsets(view->data, view->dtype == DType::kInt64, view->dim(0));
  }
  // Calls f(offsets) with a typed pointer.
  template <class F>
  __device__ void With(const F& f) const {
    if (wide) {
      f(static_cast<const int64_t*>(data));
    } else {
      f(static_cast<const int32_t*>(data));
    }
  }

 private:
  Offsets(const void* d, bool w, int64_t b) noexcept : data(d), wide(w), bags(b) {}
};

struct BagsJob {
  Offsets offsets;
  int64_t n;
  BagSegments segments;
  uint32_t* zeros;  // words that the next kernels find to be zero
  int64_t num_zeros;
};

// Makes segments of offsets and sets memory to zero. Bad offsets give wrong segments that are in range.
static __global__ void BagsKernel(const BagsJob job) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = GlobalThread(); i < job.num_zeros; i += threads) job.zeros[i] = 0;
  job.offsets.With([&](const auto* offsets) {
    for (int64_t bag = GlobalThread(); bag <= job.offsets.bags; bag += threads) {
      const int64_t start = bag < job.offsets.bags ? static_cast<int64_t>(offsets[bag]) : job.n;
      job.segments.starts[bag] = min(max(start, int64_t{0}), job.n);
    }
    const auto place_of = [](int64_t i) { return i; };
    bags::on_cuda::FindBags(offsets, job.offsets.bags, job.n, place_of, job.segments.segment_ids);
  });
}

struct PrepareJob {
  Ids indices;
  Ids segment_ids;
  int64_t n;
  int64_t table_rows;
  int64_t num_segments;
  int64_t per_block;  // ids
  bool segments_first;
  LeftOut left_out;
  bool positions;  // contributions get positions in place of segments
  Contribution* contributions;
  Contribution* in_place;  // null, or where contributions belong if their rows ascend: notes->unsorted tells
  int passes;
  int digit_bits;
  Notes* notes;
  uint32_t* counts;  // of ids per segment, and then of those that are dropped; may be null
  IdCopies copies;
  Offsets offsets;          // to check
  const uint32_t* only_if;  // null, or a word: nothing is done if it is 0
  ReportJob checked;        // may go nowhere

  __device__ bool LeavesOut(int64_t row, int64_t segment) const {
    if (left_out == LeftOut::kBadSegments) return !InRange(segment, num_segments);
    return left_out == LeftOut::kBadIndices && !InRange(row, table_rows);
  }
  // The row that a contribution gets.
  __device__ uint32_t Row(int64_t row, int64_t segment) const {
    return LeavesOut(row, segment) ? static_cast<uint32_t>(table_rows) : OrZero(row, table_rows);
  }
};

// counts[segment] += 1 for each lane that has a segment; those are the first lanes of the warp. Segment ids mostly come
// in runs, and a run is one atomic addition.
__device__ inline void CountRuns(uint32_t* counts, bool has_segment, uint32_t segment) {
  const unsigned lane = Lane();
  const unsigned lanes = __popc(__ballot_sync(kAllLanes, has_segment));
  const uint32_t before = __shfl_up_sync(kAllLanes, segment, 1);
  const bool starts_run = has_segment && (lane == 0 || before != segment);
  const unsigned later_starts = __ballot_sync(kAllLanes, starts_run) >> lane >> 1;
  if (starts_run) atomicAdd(counts + segment, later_starts != 0 ? __ffs(later_starts) : lanes - lane);
}

// Counts the digits of the rows that the first lanes of a warp have. If all rows are equal, one lane adds for all,
// since additions to one address would queue.
__device__ inline void CountDigits(const PrepareJob& job, uint32_t (*histograms)[kMaxDigits], bool has_row,
                                   uint32_t row) {
  const unsigned lanes = __popc(__ballot_sync(kAllLanes, has_row));
  const uint32_t first_row = __shfl_sync(kAllLanes, row, 0);
  const bool alike = __all_sync(kAllLanes, !has_row || row == first_row);
  if (alike ? Lane() != 0 || lanes == 0 : !has_row) return;
  const uint32_t mask = (1U << job.digit_bits) - 1;
  for (int pass = 0; pass < job.passes; ++pass) {
    atomicAdd(&histograms[pass][row >> pass * job.digit_bits & mask], alike ? lanes : 1);
  }
}

__device__ inline void CheckId(const PrepareJob& job, int64_t i, int64_t row, int64_t segment) {
  if (i + 1 == job.n && segment >= job.num_segments) NoteFault(job.notes, {Fault::kLastSegment, i, true});
  if (!InRange(row, job.table_rows)) NoteFault(job.notes, {Fault::kOneByOne, i, false});
  if (!InRange(segment, job.num_segments)) {
    NoteFault(job.notes, {job.segments_first ? Fault::kSegmentsFirst : Fault::kOneByOne, i, true});
  }
}

// Notes bad offsets as a bad first segment id: the number of a bag is nothing that the caller wrote, so the error says
// only that something is wrong.
__device__ inline void CheckOffsets(const PrepareJob& job) {
  job.offsets.With([&](const auto* offsets) {
    for (int64_t bag = GlobalThread(); bag < job.offsets.bags; bag += int64_t{gridDim.x} * blockDim.x) {
      if (bags::on_cuda::IsBadOffset(offsets, bag, job.n)) NoteFault(job.notes, {Fault::kOneByOne, 0, true});
    }
  });
}

// Each block checks and counts job.per_block ids.
static __global__ void __launch_bounds__(kPrepareThreads) PrepareKernel(const PrepareJob job) {
  cuda::LetNextKernelStart();
  if (job.only_if != nullptr && *job.only_if == 0) return;
  __shared__ uint32_t histograms[kMaxPasses][kMaxDigits];
  const auto for_each_digit = [&](const auto& f) {
    for (int pass = 0; pass < job.passes; ++pass) {
      for (uint32_t digit = threadIdx.x; digit < 1U << job.digit_bits; digit += kPrepareThreads) f(pass, digit);
    }
  };
  for_each_digit([&](int pass, uint32_t digit) { histograms[pass][digit] = 0; });
  __syncthreads();
  if (job.offsets.data != nullptr) CheckOffsets(job);
  const int64_t begin = blockIdx.x * job.per_block, end = min(begin + job.per_block, job.n);
  for (int64_t chunk = begin; chunk < end; chunk += kPrepareThreads * kPerThread) {
    const int64_t first = chunk + threadIdx.x;
    const int64_t left = end - first;  // ids of this thread and of those after it
    const int count = left <= 0 ? 0 : static_cast<int>(min((left - 1) / kPrepareThreads + 1, int64_t{kPerThread}));
    int64_t rows[kPerThread], segments[kPerThread];
    job.indices.Load<kPrepareThreads>(first, count, rows);
    job.segment_ids.Load<kPrepareThreads>(first, count, segments);
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) {
      const int64_t i = first + k * kPrepareThreads;
      const bool exists = k < count;
      const uint32_t segment = exists ? OrZero(segments[k], job.num_segments) : 0;
      const bool dropped = exists && job.LeavesOut(rows[k], segments[k]);
      const uint32_t row = exists ? job.Row(rows[k], segments[k]) : 0;
      if (exists) {
        if (!dropped) CheckId(job, i, rows[k], segments[k]);
        job.contributions[i] = {row, job.positions ? static_cast<uint32_t>(i) : segment};
        if (job.positions && i > 0 && job.segment_ids[i - 1] > segments[k]) job.notes->descending = 1;
        if (job.in_place != nullptr) {
          if (job.in_place != job.contributions) job.in_place[i] = job.contributions[i];
          if (i > 0 && job.Row(job.indices[i - 1], i - 1) > row) job.notes->unsorted = 1;
        }
      }
      if (exists && job.copies.indices != nullptr) job.copies.indices[i] = static_cast<int32_t>(row);
      if (exists && job.copies.segment_ids != nullptr) job.copies.segment_ids[i] = static_cast<int32_t>(segment);
      CountDigits(job, histograms, exists, row);
      if (job.counts != nullptr) {
        CountRuns(job.counts, exists, dropped ? static_cast<uint32_t>(job.num_segments) : segment);
      }
    }
  }
  __syncthreads();
  for_each_digit([&](int pass, uint32_t digit) {
    if (const uint32_t count = histograms[pass][digit]; count != 0) {
      atomicAdd(&job.notes->histograms[pass][digit], count);
    }
  });
  if (job.checked.to.report == nullptr || !IsLastBlock(&job.notes->blocks_prepared) || threadIdx.x != 0) return;
  job.checked.Write(/*num_unique=*/0, __ldcg(&job.notes->first_fault), __ldcg(&job.notes->descending));
}

}  // namespace raggrad::sparse_segment::on_cuda
