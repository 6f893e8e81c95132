#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_segment/weights/device_weights.cuh"
#include "raggrad/ops/sparse_segment/weights/segment_runs.cuh"
#include "raggrad/ops/sparse_segment/weights/weights_cuda.cuh"

namespace raggrad::sparse_segment::on_cuda {
namespace {

constexpr int kThreads = cuda::kTuning.item_threads_per_block;

// D(s) of every segment that has ids. A block for every kRunIds ids. read_early: ids and weights are read while the
// kernel before still runs.
template <class A, bool kOrderFree>
__global__ void DivisorsKernel(const SegmentRuns runs, const DeviceWeights weights, SegmentCombiner combiner,
                               A* divisors, bool read_early) {
  using Term = Terms<A, 1>;
  if (!read_early) cuda::AwaitKernelBefore();
  cuda::LetNextKernelStart();
  SumSegments<A, 1, kOrderFree>(
      runs, [&](uint32_t position) { return Term{DivisorTerm(combiner, weights.Get<A>(position))}; },
      [&](uint32_t segment, const Term& sum, int64_t) {
        cuda::AwaitKernelBefore();  // it may still need the memory that is written now
        divisors[segment] = WeightsDivisor(combiner, sum.of[0]);
      });
  cuda::AwaitKernelBefore();  // kernels behind this one rely on the end of those before it
}

// Segment and factor of an id, which contributions look up together.
template <class A>
struct alignas(2 * sizeof(A)) WeightedId {
  uint32_t segment;
  A factor;
};

// One of counts and divisors, or none for Sum.
template <class A>
struct FactorsJob {
  Ids segment_ids;
  int64_t n;
  int64_t num_segments;
  DeviceWeights weights;
  SegmentCombiner combiner;
  const uint32_t* counts;
  const A* divisors;
  WeightedId<A>* ids;  // [n]
  bool read_early;     // ids and weights are read while the kernel before still runs
};

constexpr int kAtOnce = cuda::kTuning.factors_per_thread;

// Calls f(k, i) for the items i that this thread has, k = 0, 1, ...: every kThreads-th of its block's.
template <class F>
__device__ void ForEachOfThread(int64_t n, const F& f) {
  const int64_t first = int64_t{blockIdx.x} * (kThreads * kAtOnce) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k) {
    if (first + k * kThreads < n) f(k, first + k * kThreads);
  }
}

// A thread for every kAtOnce ids.
template <class A>
__global__ void __launch_bounds__(kThreads) FactorsKernel(const FactorsJob<A> job) {
  if (!job.read_early) cuda::AwaitKernelBefore();
  uint32_t segments[kAtOnce];
  A factors[kAtOnce], divisors[kAtOnce];
  ForEachOfThread(job.n, [&](int k, int64_t i) {
    segments[k] = OrZero(job.segment_ids[i], job.num_segments);
    factors[k] = job.weights.template Get<A>(i);
  });
  if (job.read_early) cuda::AwaitKernelBefore();
  cuda::LetNextKernelStart();  // only now: LookUpKernel reads the plan before it waits for this kernel
  if (job.combiner != SegmentCombiner::kSum) {
    ForEachOfThread(job.n, [&](int k, int64_t) {
      divisors[k] =
          job.divisors != nullptr ? job.divisors[segments[k]] : CountDivisor<A>(job.combiner, job.counts[segments[k]]);
    });
    ForEachOfThread(job.n, [&](int k, int64_t) { factors[k] = DivideOrZero(factors[k], divisors[k]); });
  }
  ForEachOfThread(job.n, [&](int k, int64_t i) { job.ids[i] = {segments[k], factors[k]}; });
}

// Looks up the factors of contributions, a thread those of kAtOnce, by their positions. `unfinished` is null, or the
// contributions, which have positions in place of segments: they get segments, and the positions are kept.
template <class A>
__global__ void __launch_bounds__(kThreads)
    LookUpKernel(const WeightedId<A>* ids, int64_t n, Contribution* unfinished, uint32_t* kept_positions,
                 const uint32_t* positions, A* factors) {
  uint32_t looked_up[kAtOnce];
  WeightedId<A> found[kAtOnce];
  ForEachOfThread(
      n, [&](int k, int64_t i) { looked_up[k] = unfinished != nullptr ? unfinished[i].segment : positions[i]; });
  cuda::AwaitKernelBefore();
  cuda::LetNextKernelStart();
  ForEachOfThread(n, [&](int k, int64_t) { found[k] = ids[looked_up[k]]; });
  ForEachOfThread(n, [&](int k, int64_t i) {
    factors[i] = found[k].factor;
    if (unfinished == nullptr) return;
    unfinished[i].segment = found[k].segment;
    kept_positions[i] = looked_up[k];
  });
}

template <class A>
Status LaunchDivisors(const Call& call, const SegmentRuns& runs, const SegmentWeights& weights,
                      SegmentCombiner combiner, A* divisors, bool read_early) noexcept {
  const bool order_free = call.ctx.accumulation == Accumulation::kReproducible;
  return call.LaunchEarly(order_free ? &DivisorsKernel<A, true> : &DivisorsKernel<A, false>,
                          cuda::Blocks(runs.n, kRunIds), kRunThreads, 0, runs, DeviceWeights(weights.values), combiner,
                          divisors, read_early);
}

template <class A>
Result<Scratch<A>> QueueDivisors(const Call& call, const GradProblem& p, const Plan& plan,
                                 SegmentTrend order) noexcept {
  Result<Scratch<A>> divisors = Scratch<A>::Make(call.device_memory(), p.ids.num_segments);
  if (!divisors.ok()) return divisors;
  SegmentRuns runs = {Ids(p.ids.segment_ids), p.ids.n(), p.ids.num_segments};
  Plan by_segment;
  if (order != SegmentTrend::kAscending) {
    runs.only_if = order == SegmentTrend::kUnknown ? plan.descending : nullptr;
    Result<Plan> sorted = QueueBySegment(call, p.ids, runs.only_if);
    if (!sorted.ok()) return sorted.status();
    by_segment = *std::move(sorted);
    runs.by_segment = by_segment.contributions.data();
  }
  const bool read_early = p.plan == nullptr && runs.by_segment == nullptr;
  if (Status s = LaunchDivisors(call, runs, *p.weights, p.combiner, divisors->data(), read_early); !s.ok()) return s;
  return divisors;
}

}  // namespace

template <class A>
Result<Scratch<A>> QueueDivisors(const Call& call, const ForwardProblem& p, int64_t num_segments) noexcept {
  const bool by_weights = p.weights != nullptr && p.weights->divisor == WeightDivisor::kWeights;
  if (!by_weights || p.combiner == SegmentCombiner::kSum) return Scratch<A>();
  Result<Scratch<A>> divisors = Scratch<A>::Make(call.device_memory(), num_segments);
  if (!divisors.ok()) return divisors;
  const SegmentRuns runs = {Ids(p.segment_ids), p.n(), num_segments};
  const Status queued = LaunchDivisors(call, runs, *p.weights, p.combiner, divisors->data(), /*read_early=*/false);
  if (!queued.ok()) return queued;
  return divisors;
}

template <class A>
Result<Scratch<A>> QueueFactors(const Call& call, const GradProblem& p, const Plan& plan, SegmentTrend order,
                                Plan* unfinished) noexcept {
  if (!p.is_weighted()) return Scratch<A>();
  const bool by_weights = p.is_scaled() && !p.divides_by_count();
  const Result<Scratch<A>> divisors = by_weights ? QueueDivisors<A>(call, p, plan, order) : Scratch<A>();
  if (!divisors.ok()) return divisors.status();
  const int64_t n = p.ids.n();
  Result<Scratch<A>> factors = Scratch<A>::Make(call.device_memory(), n);
  if (!factors.ok()) return factors;
  Result<Scratch<WeightedId<A>>> ids = Scratch<WeightedId<A>>::Make(call.device_memory(), n);
  if (!ids.ok()) return ids.status();
  const FactorsJob<A> job = {.segment_ids = Ids(p.ids.segment_ids),
                             .n = n,
                             .num_segments = p.ids.num_segments,
                             .weights = DeviceWeights(p.weights->values),
                             .combiner = p.combiner,
                             .counts = plan.counts,
                             .divisors = divisors->data(),
                             .ids = ids->data(),
                             .read_early = p.plan == nullptr};  // whose kernels have waited for the operands
  const unsigned blocks = cuda::Blocks(n, kThreads * kAtOnce);
  if (Status s = call.LaunchEarly(FactorsKernel<A>, blocks, kThreads, 0, job); !s.ok()) return s;
  Contribution* const contributions = unfinished != nullptr ? unfinished->contributions.data() : nullptr;
  uint32_t* const kept = unfinished != nullptr ? unfinished->positions.data() : nullptr;
  const WeightedId<A>* const looked_up = ids->data();
  const Status queued = call.LaunchEarly(LookUpKernel<A>, blocks, kThreads, 0, looked_up, n, contributions, kept,
                                         plan.positions.data(), factors->data());
  if (!queued.ok()) return queued;
  return factors;
}

template Result<Scratch<float>> QueueFactors<float>(const Call&, const GradProblem&, const Plan&, SegmentTrend,
                                                    Plan*) noexcept;
template Result<Scratch<double>> QueueFactors<double>(const Call&, const GradProblem&, const Plan&, SegmentTrend,
                                                      Plan*) noexcept;
template Result<Scratch<float>> QueueDivisors<float>(const Call&, const ForwardProblem&, int64_t) noexcept;
template Result<Scratch<double>> QueueDivisors<double>(const Call&, const ForwardProblem&, int64_t) noexcept;

}  // namespace raggrad::sparse_segment::on_cuda
