// Finds the magnitudes that kReproducible needs, in two kernels: of the gradient's rows, and of the rows of sums that
// extend over several groups. SumGroupsKernel finds those of the other rows while it has them.
#include "raggrad/ops/sparse_segment/grad/sum_groups.cuh"

namespace raggrad::sparse_segment::on_cuda {
namespace {

using cuda::Call;

constexpr int kThreads = cuda::kTuning.item_threads_per_block;
constexpr int kWarps = kThreads / static_cast<int>(cuda::kWarp);

// Sets largest[s] to the largest finite magnitude of row s, with a team of lanes for each row, and clears `spanning`.
template <class T, int kColumns>
__global__ void LargestKernel(const T* grad, int64_t width, int64_t num_segments, int lanes, SumType<T>* largest,
                              SpanningRow<SumType<T>>* spanning, int64_t groups) {
  using A = SumType<T>;
  cuda::AwaitKernelBefore();
  cuda::LetNextKernelStart();
  const int64_t thread = cuda::GlobalThread();
  if (spanning != nullptr && thread < groups) spanning[thread] = {};
  const int64_t segment = thread / lanes;
  const auto lane = static_cast<int>(threadIdx.x) % lanes;
  A found = 0;
  if (segment < num_segments) {
    const T* const row = grad + segment * width;
    for (int64_t c = lane * kColumns; c < width; c += lanes * kColumns) {
      const auto x = Load<kColumns>(row + c);
      for (int k = 0; k < kColumns; ++k) found = LargerFinite(found, cuda::Widen(x.values[k]));
    }
  }
  found = LargestOfLanes(found, lanes);
  if (segment < num_segments && lane == 0) largest[segment] = found;
}

// The first i in [low, high) whose row is at least `row`, or high. By all lanes of a warp.
__device__ int64_t FirstAtLeast(const Contribution* sorted, int64_t low, int64_t high, uint64_t row) {
  while (low < high) {
    const int64_t step = (high - low + cuda::kWarp - 1) / cuda::kWarp;
    const int64_t probe = low + step * (cuda::Lane() + 1) - 1;
    const bool less = probe < high && sorted[probe].row < row;
    low += step * __popc(__ballot_sync(cuda::kAllLanes, less));
    high = min(high, low + step - 1);
  }
  return low;
}

// A warp for each group. It takes part in the search for the magnitudes of the row that began before the group, and of
// the row that begins in it and extends into the next.
template <class T>
__global__ void SpanningKernel(const SumJob<T> job, int64_t groups, SpanningRow<SumType<T>>* spanning,
                               uint32_t* began_in) {
  using A = SumType<T>;
  cuda::AwaitKernelBefore();
  cuda::LetNextKernelStart();
  const int64_t group = int64_t{blockIdx.x} * kWarps + threadIdx.x / cuda::kWarp;
  if (group >= groups) return;
  const unsigned lane = cuda::Lane();
  const Contribution* const sorted = job.contributions;
  const int64_t begin = group * kContributionsPerGroup, end = min(begin + kContributionsPerGroup, job.n);
  const uint32_t first_row = sorted[begin].row, last_row = sorted[end - 1].row;
  const bool began_before = begin > 0 && sorted[begin - 1].row == first_row;
  const bool goes_on = end < job.n && sorted[end].row == last_row;

  // Adds the contributions of `row` that lie in [begin, end) to the row that began in group `owner`.
  const auto take = [&](uint32_t row, int64_t owner) {
    A largest = 0;
    uint32_t count = 0;
    for (int64_t i = begin + lane; i < end; i += cuda::kWarp) {
      const Contribution contribution = sorted[i];
      if (contribution.row != row) continue;
      const A x = job.Largest(contribution.segment, job.Factor(i, contribution.segment));
      if (x > largest) largest = x;
      ++count;
    }
    largest = LargestOfLanes(largest, cuda::kWarp);
    count = __reduce_add_sync(cuda::kAllLanes, count);
    if (lane != 0) return;
    AtomicLarger(&spanning[owner].largest, largest);
    atomicAdd(&spanning[owner].count, count);
  };
  if (began_before) {
    const int64_t owner = FirstAtLeast(sorted, 0, begin, first_row) / kContributionsPerGroup;
    if (lane == 0) began_in[group] = static_cast<uint32_t>(owner);
    take(first_row, owner);
  }
  if (goes_on && !(began_before && first_row == last_row)) take(last_row, group);
}

template <class T, int kColumns>
Status QueueLargest(const Call& call, const SumJob<T>& job, int64_t num_segments, SumType<T>* largest,
                    SpanningRow<SumType<T>>* spanning) noexcept {
  int lanes = 1;
  while (lanes < static_cast<int>(cuda::kWarp) && lanes * kColumns < job.width) lanes *= 2;
  const int64_t groups = GroupsOf(job.n);
  return call.LaunchEarly(LargestKernel<T, kColumns>, cuda::Blocks(std::max(num_segments * lanes, groups), kThreads),
                          kThreads, 0, job.grad, job.width, num_segments, lanes, largest, spanning, groups);
}

}  // namespace

template <class T>
Status QueueMagnitudes(const Call& call, const SumJob<T>& job, int64_t num_segments, SumType<T>* largest,
                       SpanningRow<SumType<T>>* spanning, uint32_t* began_in) noexcept {
  constexpr int kColumns = 16 / sizeof(T);
  const bool aligned = job.width % kColumns == 0 && reinterpret_cast<uintptr_t>(job.grad) % 16 == 0;
  const Status queued = aligned ? QueueLargest<T, kColumns>(call, job, num_segments, largest, spanning)
                                : QueueLargest<T, 1>(call, job, num_segments, largest, spanning);
  if (!queued.ok() || spanning == nullptr) return queued;
  const int64_t groups = GroupsOf(job.n);
  return call.LaunchEarly(SpanningKernel<T>, cuda::Blocks(groups, kWarps), kThreads, 0, job, groups, spanning,
                          began_in);
}

template Status QueueMagnitudes<Half>(const Call&, const SumJob<Half>&, int64_t, float*, SpanningRow<float>*,
                                      uint32_t*) noexcept;
template Status QueueMagnitudes<BFloat16>(const Call&, const SumJob<BFloat16>&, int64_t, float*, SpanningRow<float>*,
                                          uint32_t*) noexcept;
template Status QueueMagnitudes<float>(const Call&, const SumJob<float>&, int64_t, float*, SpanningRow<float>*,
                                       uint32_t*) noexcept;
template Status QueueMagnitudes<double>(const Call&, const SumJob<double>&, int64_t, double*, SpanningRow<double>*,
                                        uint32_t*) noexcept;

}  // namespace raggrad::sparse_segment::on_cuda
