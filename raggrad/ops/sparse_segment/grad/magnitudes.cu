// Prepares sums: memory and, for kReproducible, the magnitudes that it needs, in two kernels: of the gradient's rows,
// and of the rows of sums that extend over several groups. SumGroupsKernel finds those of the other rows while it has
// them.
#include "raggrad/cuda/device.cuh"
#include "raggrad/ops/sparse_segment/grad/sum_job.cuh"

namespace raggrad::sparse_segment::on_cuda {
namespace {

using cuda::Call;

constexpr int kThreads = cuda::kTuning.item_threads_per_block;
constexpr int kSpanningThreads = cuda::kTuning.spanning_threads_per_block;
static_assert(kContributionsPerGroup % kSpanningThreads == 0, "each thread has equally many contributions");
constexpr int kRowsAtOnce = cuda::kTuning.describe_rows_in_flight;

// Describes all rows of the gradient, with a team of lanes for kRowsAtOnce of them, and clears the spanning rows.
// read_early: the gradient is read while the kernel before still runs.
template <class T, int kColumns>
__global__ void __launch_bounds__(kThreads)
    DescribeKernel(const SumJob<T> job, int64_t num_segments, int lanes, bool read_early) {
  using A = SumType<T>;
  if (!read_early) cuda::AwaitKernelBefore();
  cuda::LetNextKernelStart();
  const int64_t thread = cuda::GlobalThread();
  const int64_t first = thread / lanes * kRowsAtOnce;
  const auto lane = static_cast<int>(threadIdx.x) % lanes;
  const T* const row = job.grad + first * job.width;
  A largest[kRowsAtOnce] = {};
  [[maybe_unused]] A smallest[kRowsAtOnce];  // that is not 0
  if constexpr (SegmentRow<A>::kHasSmallest) {
    for (A& magnitude : smallest) magnitude = __builtin_inff();
  }
  for (int64_t c = lane * kColumns; c < job.width; c += lanes * kColumns) {
    Columns<T, kColumns> x[kRowsAtOnce];
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      if (first + r < num_segments) x[r] = Load<kColumns>(row + r * job.width + c);
    }
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      if (first + r >= num_segments) continue;
      for (int k = 0; k < kColumns; ++k) {
        const A value = cuda::Widen(x[r].values[k]);
        largest[r] = fmax(largest[r], fabs(value));  // no NaN
        if constexpr (SegmentRow<A>::kHasSmallest) smallest[r] = SmallerNonzero(smallest[r], value);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r) {
    if (largest[r] - largest[r] == 0) continue;
    largest[r] = 0;  // there are infinities, which do not count
    for (int64_t c = lane * kColumns; c < job.width; c += lanes * kColumns) {
      for (int k = 0; k < kColumns; ++k) {
        largest[r] = LargerFinite(largest[r], cuda::Widen(row[r * job.width + c + k]));
      }
    }
  }
  if (read_early) cuda::AwaitKernelBefore();  // it may still need the memory that is written now
  if (job.spanning != nullptr && thread < GroupsOf(job.n)) job.spanning[thread] = {};
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const A most = LargestOfLanes(largest[r], lanes);
    [[maybe_unused]] A least;
    if constexpr (SegmentRow<A>::kHasSmallest) least = SmallestOfLanes(smallest[r], lanes);
    if (lane != 0 || first + r >= num_segments) continue;
    SegmentRow<A> described = {1, most};
    if (job.factors == nullptr) {
      const A factor = job.SegmentFactor(static_cast<uint32_t>(first + r));  // at most 1, so that no product overflows
      described = {factor, cuda::Multiply(most, factor)};
      if constexpr (SegmentRow<A>::kHasSmallest) described.PackSmallest(cuda::Multiply(least, factor));
    }
    job.segment_rows[first + r] = described;
  }
}

// The group where `row` began, which has contributions in `group` and in the group before. Called by all lanes of a
// warp.
__device__ int64_t GroupOfBegin(const Contribution* sorted, int64_t group, uint32_t row) {
  // The last contribution of group `in` is of this row. That of group `out` is not, or there is no such group. The
  // first round probes the 32 groups before, since few rows extend further.
  int64_t in = group - 1;
  int64_t out = -1;
  for (int64_t step = 1; in - out > 1; step = (in - out + 31) / 32) {
    const int64_t probe = in - step * (static_cast<int64_t>(cuda::Lane()) + 1);
    const bool same = probe > out && sorted[(probe + 1) * kContributionsPerGroup - 1].row == row;
    const uint32_t all_same = __ballot_sync(cuda::kAllLanes, same);
    in -= step * __popc(all_same);
    if (all_same != cuda::kAllLanes) out = max(out, in - step);
  }
  return in;
}

// A block for each group. It takes part in the search for the magnitudes of the row that began before the group, and of
// the row that begins in it and extends into the next.
template <class T>
__global__ void __launch_bounds__(kSpanningThreads) SpanningKernel(const SumJob<T> job) {
  using A = SumType<T>;
  constexpr int kPerThread = kContributionsPerGroup / kSpanningThreads;
  __shared__ SpanningRow<A> found[2];  // in this group, of the two rows
  if (threadIdx.x < 2) found[threadIdx.x] = {};
  cuda::AwaitKernelBefore();
  cuda::LetNextKernelStart();
  const int64_t group = blockIdx.x;
  const Contribution* const sorted = job.contributions;
  const int64_t begin = group * kContributionsPerGroup, end = min(begin + kContributionsPerGroup, job.n);
  Contribution contributions[kPerThread];
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const int64_t i = begin + threadIdx.x + k * kSpanningThreads;
    if (i < end) contributions[k] = sorted[i];
  }
  const uint32_t first_row = sorted[begin].row, last_row = sorted[end - 1].row;
  const bool began_before = begin > 0 && sorted[begin - 1].row == first_row;
  const bool goes_on = end < job.n && sorted[end].row == last_row && !(began_before && first_row == last_row);
  A largest[kPerThread] = {};
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const int64_t i = begin + threadIdx.x + k * kSpanningThreads;
    const bool taken = i < end && ((began_before && contributions[k].row == first_row) ||
                                   (goes_on && contributions[k].row == last_row));
    if (!taken) continue;
    const uint32_t segment = contributions[k].segment;
    largest[k] = job.Described(i, segment, job.segment_rows[segment]).largest;
  }
  const int64_t owner = began_before ? GroupOfBegin(sorted, group, first_row) : group;
  if (threadIdx.x == 0) job.began_in[group] = static_cast<uint32_t>(owner);
  __syncthreads();
  // Adds the contributions of `row` in this group to the row that began in group `began_in`.
  const auto take = [&](uint32_t row, SpanningRow<A>& sum, int64_t began_in) {
    A most = 0;
    uint32_t count = 0;
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) {
      if (begin + threadIdx.x + k * kSpanningThreads >= end || contributions[k].row != row) continue;
      most = fmax(most, largest[k]);
      ++count;
    }
    most = LargestOfLanes(most, cuda::kWarp);
    count = __reduce_add_sync(cuda::kAllLanes, count);
    if (cuda::Lane() == 0 && count > 0) {
      AtomicLarger(&sum.largest, most);
      atomicAdd(&sum.count, count);
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    AtomicLarger(&job.spanning[began_in].largest, sum.largest);
    atomicAdd(&job.spanning[began_in].count, sum.count);
  };
  if (began_before) take(first_row, found[0], owner);
  if (goes_on) take(last_row, found[1], group);
}

template <class T, int kColumns>
Status QueueDescribe(const Call& call, const SumJob<T>& job, int64_t num_segments, bool read_early) noexcept {
  int lanes = 1;
  while (lanes < static_cast<int>(cuda::kWarp) && lanes * kColumns < job.width) lanes *= 2;
  const int64_t teams = (num_segments + kRowsAtOnce - 1) / kRowsAtOnce;
  return call.LaunchEarly(DescribeKernel<T, kColumns>, cuda::Blocks(std::max(teams * lanes, GroupsOf(job.n)), kThreads),
                          kThreads, 0, job, num_segments, lanes, read_early);
}

template <class T>
Status QueueMagnitudes(const Call& call, const SumJob<T>& job, int64_t num_segments, bool read_early) noexcept {
  constexpr int kColumns = 16 / sizeof(T);
  const bool aligned = job.width % kColumns == 0 && reinterpret_cast<uintptr_t>(job.grad) % 16 == 0;
  const Status queued = aligned ? QueueDescribe<T, kColumns>(call, job, num_segments, read_early)
                                : QueueDescribe<T, 1>(call, job, num_segments, read_early);
  if (!queued.ok() || job.spanning == nullptr) return queued;
  return call.LaunchEarly(SpanningKernel<T>, static_cast<unsigned>(GroupsOf(job.n)), kSpanningThreads, 0, job);
}

// Parts of one block of memory, each aligned for every type.
class Cutter {
 public:
  // Adds a part of `count` values and returns where it begins.
  template <class V>
  int64_t Add(int64_t count) noexcept {
    constexpr int64_t kAlignment = 16;
    const int64_t begin = size_;
    size_ += (count * static_cast<int64_t>(sizeof(V)) + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  }
  int64_t size() const noexcept { return size_; }

 private:
  int64_t size_ = 0;
};

}  // namespace

template <class T>
Result<Scratch<char>> PrepareSums(const Call& call, SumJob<T>& job, Accumulation accumulation, int64_t num_segments,
                                  bool read_early) noexcept {
  using A = SumType<T>;
  const bool exact = accumulation == Accumulation::kReproducible;
  const int64_t groups = GroupsOf(job.n);
  const int64_t spanning_groups = exact && groups > 1 ? groups : 0;
  // Of rows that extend over several groups: none if there is only one, or if one team sums a whole row.
  const int64_t part = exact ? ExactSums<T, 1>::kParts * sizeof(double) : sizeof(A);
  const int64_t parts = groups == 1 || accumulation == Accumulation::kSequential ? 0 : groups * job.width * part;
  Cutter cutter;
  const int64_t carries = cutter.Add<char>(parts), tails = cutter.Add<char>(parts);
  const int64_t segment_rows = cutter.Add<SegmentRow<A>>(exact ? num_segments : 0);
  const int64_t spanning = cutter.Add<SpanningRow<A>>(spanning_groups);
  const int64_t began_in = cutter.Add<uint32_t>(spanning_groups);
  Result<Scratch<char>> memory = Scratch<char>::Make(call.device_memory(), cutter.size());
  if (!memory.ok()) return memory;
  char* const data = memory->data();
  if (parts > 0) {
    job.carries = data + carries;
    job.tails = data + tails;
  }
  if (!exact) return memory;
  job.segment_rows = reinterpret_cast<SegmentRow<A>*>(data + segment_rows);
  if (spanning_groups > 0) {
    job.spanning = reinterpret_cast<SpanningRow<A>*>(data + spanning);
    job.began_in = reinterpret_cast<uint32_t*>(data + began_in);
  }
  if (Status s = QueueMagnitudes(call, job, num_segments, read_early); !s.ok()) return s;
  return memory;
}

template Result<Scratch<char>> PrepareSums<Half>(const Call&, SumJob<Half>&, Accumulation, int64_t, bool) noexcept;
template Result<Scratch<char>> PrepareSums<BFloat16>(const Call&, SumJob<BFloat16>&, Accumulation, int64_t,
                                                     bool) noexcept;
template Result<Scratch<char>> PrepareSums<float>(const Call&, SumJob<float>&, Accumulation, int64_t, bool) noexcept;
template Result<Scratch<char>> PrepareSums<double>(const Call&, SumJob<double>&, Accumulation, int64_t, bool) noexcept;

}  // namespace raggrad::sparse_segment::on_cuda
