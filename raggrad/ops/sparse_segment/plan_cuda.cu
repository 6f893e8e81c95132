// Plans in device memory: ids are checked, counted, sorted by row, and rows are counted per group of contributions.
#include <bit>
#include <cub/block/block_scan.cuh>
#include <cub/device/device_radix_sort.cuh>

#include "raggrad/ops/sparse_segment/plan_cuda.cuh"
#include "raggrad/ops/sparse_segment/plan_state.h"

namespace raggrad::sparse_segment::cuda {
namespace {

using ::raggrad::cuda::Blocks;

constexpr int kThreads = 256;
constexpr int kScanThreads = 1024;

// What the kernels find out about the ids, zero at first. The counts of segments come right behind it.
struct Notes {
  unsigned long long first_fault;  // ~Fault::Encode(), so that the first is the largest
  uint32_t descending;
  uint32_t unused;
};
constexpr int64_t kNotesWords = sizeof(Notes) / sizeof(uint32_t);

struct PrepareJob {
  Ids indices;
  Ids segment_ids;
  int64_t n;
  int64_t dim0;
  int64_t segments;
  bool segments_first;
  uint32_t* rows;
  uint32_t* contribution_segments;
  Notes* notes;
  uint32_t* counts;  // may be null
  IdCopies copies;
};

__device__ void NoteFault(Notes* notes, const Fault& fault) {
  atomicMax(&notes->first_fault, ~static_cast<unsigned long long>(fault.Encode()));
}

__device__ bool InRange(int64_t id, int64_t limit) { return static_cast<uint64_t>(id) < static_cast<uint64_t>(limit); }

// counts[segment] += 1 for the lanes of a warp that have one, the first ones. Segment ids mostly come in runs: one
// addition to memory for each.
__device__ void CountRuns(uint32_t* counts, bool has_segment, uint32_t segment) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned lanes = __popc(__ballot_sync(~0U, has_segment));
  const uint32_t before = __shfl_up_sync(~0U, segment, 1);
  const bool starts_run = has_segment && (lane == 0 || before != segment);
  const unsigned later_starts = __ballot_sync(~0U, starts_run) >> lane >> 1;
  if (starts_run) atomicAdd(counts + segment, later_starts != 0 ? __ffs(later_starts) : lanes - lane);
}

// One thread for each id.
__global__ void PrepareKernel(const PrepareJob job) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool valid = i < job.n;
  int64_t segment = 0;
  if (valid) {
    int64_t row = job.indices[i];
    segment = job.segment_ids[i];
    if (i + 1 == job.n && segment >= job.segments) NoteFault(job.notes, {Fault::kLastSegment, i, true});
    if (!InRange(row, job.dim0)) {
      NoteFault(job.notes, {Fault::kOneByOne, i, false});
      row = 0;
    }
    if (!InRange(segment, job.segments)) {
      NoteFault(job.notes, {job.segments_first ? Fault::kSegmentsFirst : Fault::kOneByOne, i, true});
      segment = 0;
    }
    job.rows[i] = static_cast<uint32_t>(row);
    job.contribution_segments[i] = static_cast<uint32_t>(segment);
    if (job.copies.indices != nullptr) {
      job.copies.indices[i] = static_cast<int32_t>(row);
      job.copies.segment_ids[i] = static_cast<int32_t>(segment);
      if (i > 0 && job.segment_ids[i - 1] > segment) job.notes->descending = 1;
    }
  }
  if (job.counts != nullptr) CountRuns(job.counts, valid, static_cast<uint32_t>(segment));
}

// One block for each group, one thread for each contribution: how many rows begin in the group.
__global__ void CountRowsKernel(const uint32_t* rows, int64_t n, uint32_t* rows_in_group) {
  const int64_t i = int64_t{blockIdx.x} * kGroup + threadIdx.x;
  const bool begins = i < n && (i == 0 || rows[i - 1] != rows[i]);
  const int count = __syncthreads_count(begins);
  if (threadIdx.x == 0) rows_in_group[blockIdx.x] = static_cast<uint32_t>(count);
}

// One block: rows in each group become rows before it, and the notes a report.
__global__ void ReportKernel(uint32_t* rows, int64_t groups, const Ids indices, const Ids segment_ids,
                             const Notes* notes, Report report, Report* out) {
  using Scan = cub::BlockScan<uint32_t, kScanThreads>;
  __shared__ typename Scan::TempStorage storage;
  uint32_t before = 0;
  for (int64_t first = 0; first < groups; first += kScanThreads) {
    const int64_t group = first + threadIdx.x;
    uint32_t total = 0;
    uint32_t sum = 0;
    Scan(storage).ExclusiveSum(group < groups ? rows[group] : 0, sum, total);
    if (group < groups) rows[group] = before + sum;
    before += total;
    __syncthreads();  // the storage is used again
  }
  if (threadIdx.x != 0) return;
  if (groups > 0) {
    rows[groups] = before;
    report.rows = before;
    report.fault = ~uint64_t{notes->first_fault};
    report.descending = notes->descending;
  }
  if (report.fault != Fault::kNone) {
    const Fault fault = Fault::Decode(report.fault);
    report.value = fault.in_segment_ids ? segment_ids[fault.position] : indices[fault.position];
  }
  *out = report;
}

Status QueueReport(const Call& call, const Problem& p, uint32_t* rows, int64_t groups, const Notes* notes,
                   Report* out) noexcept {
  Report report;
  report.dim0 = static_cast<uint64_t>(p.dim0);
  report.segments = static_cast<uint64_t>(p.segments());
  report.combiner = static_cast<uint64_t>(p.combiner);
  return call.Launch(ReportKernel, 1, kScanThreads, rows, groups, Ids(p.indices), Ids(p.segment_ids), notes, report,
                     out);
}

// Sorts the plan's contributions by row; stable. Only as many bits as dim0 needs.
Status Sort(const Call& call, const Problem& p, Plan& plan) noexcept {
  Result<Scratch<uint32_t>> rows = Scratch<uint32_t>::Make(call.ctx, p.n());
  if (!rows.ok()) return rows.status();
  Result<Scratch<uint32_t>> segments = Scratch<uint32_t>::Make(call.ctx, p.n());
  if (!segments.ok()) return segments.status();
  const int bits = std::max(static_cast<int>(std::bit_width(static_cast<uint32_t>(p.dim0 - 1))), 1);
  cub::DoubleBuffer<uint32_t> keys(plan.rows.data(), rows->data());
  cub::DoubleBuffer<uint32_t> values(plan.segments.data(), segments->data());
  const Status sorted = call.RunCub([&](void* memory, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(memory, bytes, keys, values, static_cast<uint32_t>(p.n()), 0, bits,
                                           call.stream);
  });
  if (!sorted.ok()) return sorted;
  if (keys.Current() == rows->data()) std::swap(plan.rows, *rows);
  if (values.Current() == segments->data()) std::swap(plan.segments, *segments);
  return {};
}

// One thread for each id: the first that differs, as ~position, so that it is the largest.
__global__ void CompareKernel(const Ids ids, const int32_t* planned, int64_t n, unsigned long long* first) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n && ids[i] != planned[i]) atomicMax(first, ~static_cast<unsigned long long>(i));
}

Status CheckSizes(const Problem& problem) noexcept {
  if (problem.n() <= int64_t{UINT32_MAX} && problem.segments() <= int64_t{UINT32_MAX}) return {};
  return MakeError(Code::kUnimplemented, problem.op, ": too many ids or segments for a GPU [expected at most ",
                   UINT32_MAX, ", got ", problem.n(), " ids and ", problem.segments(), " segments]");
}

}  // namespace

Result<Plan> QueuePlan(const Call& call, const Problem& p, bool count_segments, const IdCopies& copies,
                       Report* report) noexcept {
  if (Status s = CheckSizes(p); !s.ok()) return s;
  const int64_t groups = (p.n() + kGroup - 1) / kGroup;
  const int64_t notes_words = kNotesWords + (count_segments ? std::max<int64_t>(p.segments(), 1) : 0);
  Plan plan;
  const auto make = [&](Scratch<uint32_t>& out, int64_t count) -> Status {
    Result<Scratch<uint32_t>> made = Scratch<uint32_t>::Make(call.ctx, count);
    if (made.ok()) out = *std::move(made);
    return made.status();
  };
  if (Status s = make(plan.rows, p.n()); !s.ok()) return s;
  if (Status s = make(plan.segments, p.n()); !s.ok()) return s;
  if (Status s = make(plan.rows_before, groups + 1); !s.ok()) return s;
  if (Status s = make(plan.notes, notes_words); !s.ok()) return s;
  if (Status s = call.Fill(plan.notes.data(), 0, static_cast<size_t>(notes_words) * sizeof(uint32_t)); !s.ok())
    return s;
  auto* const notes = reinterpret_cast<Notes*>(plan.notes.data());
  uint32_t* const counts = count_segments ? plan.notes.data() + kNotesWords : nullptr;
  plan.counts = counts;
  const PrepareJob job = {.indices = Ids(p.indices),
                          .segment_ids = Ids(p.segment_ids),
                          .n = p.n(),
                          .dim0 = p.dim0,
                          .segments = p.segments(),
                          .segments_first = p.segments_first,
                          .rows = plan.rows.data(),
                          .contribution_segments = plan.segments.data(),
                          .notes = notes,
                          .counts = counts,
                          .copies = copies};
  if (Status s = call.Launch(PrepareKernel, Blocks(p.n(), kThreads), kThreads, job); !s.ok()) return s;
  if (Status s = Sort(call, p, plan); !s.ok()) return s;
  if (Status s = call.Launch(CountRowsKernel, static_cast<unsigned>(groups), kGroup, plan.rows.data(), p.n(),
                             plan.rows_before.data());
      !s.ok()) {
    return s;
  }
  if (Status s = QueueReport(call, p, plan.rows_before.data(), groups, notes, report); !s.ok()) return s;
  return Result<Plan>(std::move(plan));  // nvcc 13.0 would copy
}

Status QueueEmptyReport(const Call& call, const Problem& problem, Report* report) noexcept {
  return QueueReport(call, problem, nullptr, 0, nullptr, report);
}

Result<Report> ReadReport(const Call& call, const Problem& problem, const Report* report) noexcept {
  Report read;
  if (Status s = call.ReadBack(reinterpret_cast<const uint64_t*>(report),
                               std::span(reinterpret_cast<uint64_t*>(&read), kReportWords));
      !s.ok()) {
    return s;
  }
  if (read.fault != Fault::kNone) {
    return FaultError(problem.op, read.fault, read.value, problem.dim0, problem.segments());
  }
  return read;
}

Status MakePlan(const Problem& problem, const Context& ctx, SegmentPlan::State& state) noexcept {
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  Result<Scratch<Report>> report = Scratch<Report>::Make(call->ctx, 1);
  if (!report.ok()) return report.status();
  Result<Scratch<int32_t>> indices = Scratch<int32_t>::Make(call->ctx, problem.n());
  if (!indices.ok()) return indices.status();
  Result<Scratch<int32_t>> segment_ids = Scratch<int32_t>::Make(call->ctx, problem.n());
  if (!segment_ids.ok()) return segment_ids.status();
  Result<Plan> plan =
      QueuePlan(*call, problem, /*count_segments=*/true, {indices->data(), segment_ids->data()}, report->data());
  if (!plan.ok()) return plan.status();
  const Result<Report> read = ReadReport(*call, problem, report->data());
  if (!read.ok()) return read.status();
  plan->num_rows = static_cast<int64_t>(read->rows);
  state.device_sorted = *std::move(plan);
  state.indices = *std::move(indices);
  state.segment_ids = *std::move(segment_ids);
  state.ascending = read->descending == 0;
  return {};
}

Result<int64_t> FirstDifference(const TensorView& ids, const int32_t* planned, const Context& ctx) noexcept {
  const int64_t n = ids.dim(0);
  if (n == 0) return n;
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  Result<Scratch<unsigned long long>> first = Scratch<unsigned long long>::Make(call->ctx, 1);
  if (!first.ok()) return first.status();
  if (Status s = call->Fill(first->data(), 0, sizeof(uint64_t)); !s.ok()) return s;
  if (Status s = call->Launch(CompareKernel, Blocks(n, kThreads), kThreads, Ids(ids), planned, n, first->data());
      !s.ok()) {
    return s;
  }
  uint64_t read = 0;
  if (Status s = call->ReadBack(reinterpret_cast<const uint64_t*>(first->data()), std::span(&read, 1)); !s.ok())
    return s;
  return read == 0 ? n : static_cast<int64_t>(~read);
}

}  // namespace raggrad::sparse_segment::cuda
