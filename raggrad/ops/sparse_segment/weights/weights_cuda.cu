#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_segment/weights/device_weights.cuh"
#include "raggrad/ops/sparse_segment/weights/segment_runs.cuh"
#include "raggrad/ops/sparse_segment/weights/weights_cuda.cuh"

namespace raggrad::sparse_segment::on_cuda {
namespace {

constexpr int kThreads = cuda::kTuning.item_threads_per_block;

// D(s) of every segment that has ids. One thread for each id.
template <class A, bool kOrderFree>
__global__ void DivisorsKernel(const SegmentRuns runs, const DeviceWeights weights, SegmentCombiner combiner,
                               A* divisors) {
  using Term = Terms<A, 1>;
  SumSegments<A, 1, kOrderFree>(
      runs, [&](uint32_t position) { return Term{DivisorTerm(combiner, weights.Get<A>(position))}; },
      [&](uint32_t segment, const Term& sum, int64_t) { divisors[segment] = WeightsDivisor(combiner, sum.of[0]); });
}

// One of counts and divisors, or none for Sum.
template <class A>
struct FactorsJob {
  const Contribution* contributions;  // [n]
  const uint32_t* positions;          // [n]
  int64_t n;
  DeviceWeights weights;
  SegmentCombiner combiner;
  const uint32_t* counts;
  const A* divisors;
  A* factors;  // [n]
};

// One thread for each contribution.
template <class A>
__global__ void FactorsKernel(const FactorsJob<A> job) {
  const int64_t k = cuda::GlobalThread();
  if (k >= job.n) return;
  const A weight = job.weights.template Get<A>(job.positions[k]);
  if (job.combiner == SegmentCombiner::kSum) {
    job.factors[k] = weight;
    return;
  }
  const uint32_t segment = job.contributions[k].segment;
  const A divisor =
      job.divisors != nullptr ? job.divisors[segment] : CountDivisor<A>(job.combiner, job.counts[segment]);
  job.factors[k] = DivideOrZero(weight, divisor);
}

template <class A>
Status LaunchDivisors(const Call& call, const SegmentRuns& runs, const SegmentWeights& weights,
                      SegmentCombiner combiner, A* divisors) noexcept {
  const bool order_free = call.ctx.accumulation == Accumulation::kReproducible;
  return call.Launch(order_free ? &DivisorsKernel<A, true> : &DivisorsKernel<A, false>, cuda::Blocks(runs.n, kThreads),
                     kThreads, runs, DeviceWeights(weights.values), combiner, divisors);
}

template <class A>
Result<Scratch<A>> QueueDivisors(const Call& call, const GradProblem& p, const Plan& plan) noexcept {
  Result<Scratch<A>> divisors = Scratch<A>::Make(call.device_memory(), p.ids.num_segments);
  if (!divisors.ok()) return divisors;
  SegmentRuns runs = {Ids(p.ids.segment_ids), p.ids.n(), p.ids.num_segments};
  Plan by_segment;
  if (plan.order != SegmentOrder::kAscending) {
    runs.only_if = plan.order == SegmentOrder::kUnknown ? plan.descending : nullptr;
    Result<Plan> sorted = QueueBySegment(call, p.ids, runs.only_if);
    if (!sorted.ok()) return sorted.status();
    by_segment = *std::move(sorted);
    runs.by_segment = by_segment.contributions.data();
  }
  if (Status s = LaunchDivisors(call, runs, *p.weights, p.combiner, divisors->data()); !s.ok()) return s;
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
  if (Status s = LaunchDivisors(call, runs, *p.weights, p.combiner, divisors->data()); !s.ok()) return s;
  return divisors;
}

template <class A>
Result<Scratch<A>> QueueFactors(const Call& call, const GradProblem& p, const Plan& plan) noexcept {
  if (!p.is_weighted()) return Scratch<A>();
  const bool by_weights = p.is_scaled() && !p.divides_by_count();
  const Result<Scratch<A>> divisors = by_weights ? QueueDivisors<A>(call, p, plan) : Scratch<A>();
  if (!divisors.ok()) return divisors.status();
  Result<Scratch<A>> factors = Scratch<A>::Make(call.device_memory(), p.ids.n());
  if (!factors.ok()) return factors;
  const FactorsJob<A> job = {.contributions = plan.contributions.data(),
                             .positions = plan.positions.data(),
                             .n = p.ids.n(),
                             .weights = DeviceWeights(p.weights->values),
                             .combiner = p.combiner,
                             .counts = plan.counts,
                             .divisors = divisors->data(),
                             .factors = factors->data()};
  const Status queued = call.Launch(FactorsKernel<A>, cuda::Blocks(job.n, kThreads), kThreads, job);
  if (!queued.ok()) return queued;
  return factors;
}

template Result<Scratch<float>> QueueFactors<float>(const Call&, const GradProblem&, const Plan&) noexcept;
template Result<Scratch<double>> QueueFactors<double>(const Call&, const GradProblem&, const Plan&) noexcept;
template Result<Scratch<float>> QueueDivisors<float>(const Call&, const ForwardProblem&, int64_t) noexcept;
template Result<Scratch<double>> QueueDivisors<double>(const Call&, const ForwardProblem&, int64_t) noexcept;

}  // namespace raggrad::sparse_segment::on_cuda
