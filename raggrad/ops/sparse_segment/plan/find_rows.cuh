// The last step of a plan: counts the rows that begin in each group, and writes the report.
#pragma once

#include "raggrad/ops/sparse_segment/plan/plan_cuda.cuh"
#include "raggrad/ops/sparse_segment/plan/radix_sort.cuh"

namespace raggrad::sparse_segment::on_cuda {

using cuda::Lane;

inline constexpr int kFindThreads = kContributionsPerGroup;  // one for each contribution of a group
inline constexpr int kGroupsPerBlock = kTuning.find_groups_per_block;
static_assert(kGroupsPerBlock <= kFindThreads);

// Words that the kernels of a plan share, zero at first.
struct Notes {
  unsigned long long first_fault;  // ~Fault::Encode(), so that atomicMax finds the first fault
  uint32_t descending;
  uint32_t unsorted;  // not 0 if rows do not ascend, where PrepareJob asks
  uint32_t blocks_prepared;
  uint32_t blocks_counted;
  uint32_t tickets[kMaxPasses];
  uint32_t histograms[kMaxPasses][kMaxDigits];
};

struct ReportJob {
  Ids indices;
  Ids segment_ids;
  int64_t table_rows;
  int64_t num_segments;
  ReportTo to;

  ReportJob(const SegmentIds& ids, const ReportTo& destination) noexcept
      : indices(ids.indices),
        segment_ids(ids.segment_ids),
        table_rows(ids.table_rows),
        num_segments(ids.num_segments),
        to(destination) {}

  // first_fault and descending are those of Notes.
  __device__ void Write(uint64_t num_unique, uint64_t first_fault, uint64_t descending) const {
    PaddedReport written;
    written.count = num_unique;
    written.fault = ~first_fault;
    if (written.fault == Fault::kNone && to.must_ascend && descending != 0) {
      written.fault = Fault{Fault::kDescending, 0, true}.Encode();
    }
    written.form = to.form;
    written.max = static_cast<uint64_t>(to.max_unique);
    if (written.fault != Fault::kNone) {
      const Fault fault = Fault::Decode(written.fault);
      written.value = fault.in_segment_ids ? segment_ids[fault.position] : indices[fault.position];
      written.limit = static_cast<uint64_t>(fault.in_segment_ids ? num_segments : table_rows);
    }
    *to.report = written;
    if (to.token == 0) return;
    auto* const whole = static_cast<Report*>(to.report);
    whole->descending = descending;
    __threadfence_system();  // a host that sees the token sees all words
    *const_cast<volatile uint64_t*>(&whole->token) = to.token;
  }
};

static __global__ void EmptyReportKernel(const ReportJob job) { job.Write(0, 0, 0); }

struct RowsJob {
  const Contribution* sorted;
  int64_t n;
  int64_t groups;
  uint32_t* unique_before;  // [groups + 1]
  Notes* notes;
};

// Replaces the count of each group by the sum of the counts before it, and returns the sum of all. By one block.
__device__ inline uint32_t SumBefore(uint32_t* in_groups, int64_t groups) {
  constexpr int kPerThread = kTuning.find_counts_per_thread;
  using Scan = cub::BlockScan<uint32_t, kFindThreads, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ typename Scan::TempStorage storage;
  uint32_t before = 0;
  for (int64_t begin = 0; begin < groups; begin += kFindThreads * kPerThread) {
    const int64_t first = begin + threadIdx.x * kPerThread;
    uint32_t counts[kPerThread];
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) counts[k] = first + k < groups ? __ldcg(in_groups + first + k) : 0;
    uint32_t total = 0;
    Scan(storage).ExclusiveSum(counts, counts, total);
    for (int k = 0; k < kPerThread; ++k) {
      if (first + k < groups) in_groups[first + k] = before + counts[k];
    }
    before += total;
    __syncthreads();  // the next round reuses the storage
  }
  return before;
}

// Whether this is the last block to call it. If so, everything that other blocks wrote before their call can be read.
// By all threads of the block.
__device__ inline bool IsLastBlock(uint32_t* blocks_before) {
  if (gridDim.x == 1) {
    __syncthreads();
    return true;
  }
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(blocks_before, 1U) + 1 == gridDim.x;
  __syncthreads();
  if (is_last) __threadfence();
  return is_last;
}

// Each block counts the rows that begin in each of kGroupsPerBlock groups. The last block to finish sums the counts and
// writes the report.
static __global__ void __launch_bounds__(kFindThreads) FindRowsKernel(const RowsJob job, const ReportJob report) {
  cuda::LetNextKernelStart();
  __shared__ uint32_t counts[kGroupsPerBlock];
  const uint32_t thread = threadIdx.x;
  const int64_t first_group = int64_t{blockIdx.x} * kGroupsPerBlock;
  if (thread < kGroupsPerBlock) counts[thread] = 0;
  cuda::AwaitKernelBefore();
  const uint64_t first_fault = job.notes->first_fault, descending = job.notes->descending;
  uint32_t mine[kGroupsPerBlock], before[kGroupsPerBlock];  // rows; equal where no row begins
#pragma unroll
  for (int g = 0; g < kGroupsPerBlock; ++g) {
    const int64_t i = (first_group + g) * kContributionsPerGroup + thread;
    mine[g] = i < job.n ? job.sorted[i].row : 0;
    before[g] = i >= job.n ? 0 : i == 0 ? ~mine[g] : job.sorted[i - 1].row;
  }
  __syncthreads();
#pragma unroll
  for (int g = 0; g < kGroupsPerBlock; ++g) {
    const uint32_t begins = __ballot_sync(kAllLanes, mine[g] != before[g]);
    if (Lane() == 0) atomicAdd(&counts[g], static_cast<uint32_t>(__popc(begins)));
  }
  __syncthreads();
  if (thread < kGroupsPerBlock && first_group + thread < job.groups) {
    __stcg(job.unique_before + first_group + thread, counts[thread]);
  }
  if (!IsLastBlock(&job.notes->blocks_counted)) return;
  const uint32_t num_unique = SumBefore(job.unique_before, job.groups);
  if (thread != 0) return;
  job.unique_before[job.groups] = num_unique;
  const bool dropped = job.sorted[job.n - 1].row == report.table_rows;  // ids that are dropped look like one more row
  report.Write(num_unique - (dropped ? 1 : 0), first_fault, descending);
}

inline Status QueueFindRows(const Call& call, const RowsJob& job, const ReportJob& report) noexcept {
  return call.LaunchEarly(FindRowsKernel, cuda::Blocks(job.groups, kGroupsPerBlock), kFindThreads, 0, job, report);
}

}  // namespace raggrad::sparse_segment::on_cuda
