// The factor w(i) / D(s) of each contribution of a weighted gradient (segment_pooling.h). Internal to the family.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/plan/plan_state.h"
#include "raggrad/ops/sparse_segment/weights/divisor.h"
#include "raggrad/ops/sparse_segment/weights/order_free_sum.h"
#include "raggrad/ops/sparse_segment/weights/runs.h"
#include "raggrad/ops/sparse_segment/weights/weights.h"

namespace raggrad::sparse_segment {

// Sets sums[s] to the sum of the terms of segment s, with the same bits in every order of the ids.
template <class A, class Seg>
Status SumEachOrderFree(const GradProblem& p, const Seg* segment_ids, const A* weights, const Context& ctx,
                        A* sums) noexcept {
  Result<Scratch<OrderFreeSum<A>>> made = Scratch<OrderFreeSum<A>>::Make(ctx, p.ids.num_segments);
  if (!made.ok()) return made.status();
  OrderFreeSum<A>* const exact = made->data();
  std::uninitialized_default_construct_n(exact, p.ids.num_segments);
  const auto for_each = [&](const auto& f) {
    for (int64_t i = 0; i < p.ids.n(); ++i) f(exact[segment_ids[i]], DivisorTerm(p.combiner, weights[i]));
  };
  for_each([](OrderFreeSum<A>& sum, A term) { sum.Look(term); });
  for (int64_t s = 0; s < p.ids.num_segments; ++s) exact[s].BeginToAdd();
  for_each([](OrderFreeSum<A>& sum, A term) { sum.Add(term); });
  for (int64_t s = 0; s < p.ids.num_segments; ++s) sums[s] = exact[s].Round();
  return {};
}

// D(s) of all segments of checked ids that do not ascend.
template <class A, class Seg>
Result<Scratch<A>> MakeDivisors(const GradProblem& p, const Seg* segment_ids, const int64_t* counts, const A* weights,
                                const Context& ctx) noexcept {
  Result<Scratch<A>> made = Scratch<A>::Make(ctx, p.ids.num_segments);
  if (!made.ok()) return made;
  A* const divisors = made->data();
  if (p.weights->divisor == WeightDivisor::kCount) {
    for (int64_t s = 0; s < p.ids.num_segments; ++s) divisors[s] = CountDivisor<A>(p.combiner, counts[s]);
    return made;
  }
  if (IsReproducible(ctx)) {
    if (Status s = SumEachOrderFree(p, segment_ids, weights, ctx, divisors); !s.ok()) return s;
  } else {
    std::fill_n(divisors, p.ids.num_segments, A{0});
    for (int64_t i = 0; i < p.ids.n(); ++i) divisors[segment_ids[i]] += DivisorTerm(p.combiner, weights[i]);
  }
  for (int64_t s = 0; s < p.ids.num_segments; ++s) divisors[s] = WeightsDivisor(p.combiner, divisors[s]);
  return made;
}

// Calls emit(i, segment, factor) for every id i, in any order, on any threads.
template <class A, class Emit>
Status ForEachFactor(const GradProblem& p, const int64_t* counts, const A* weights, const Context& ctx,
                     const Emit& emit) noexcept {
  const int64_t n = p.ids.n();
  Executor& executor = ExecutorOf(ctx);
  const cpu::Chunks chunks = cpu::SplitEvenly(executor, n, kWeightGrain);
  return Visit(IndexTypes{}, p.ids.segment_ids.dtype, [&]<class Seg>() -> Status {
    const Seg* const segment_ids = p.ids.segment_ids.As<Seg>();
    if (p.combiner == SegmentCombiner::kSum) {
      return cpu::ForEachChunkUntilStopped(executor, chunks, [&](int64_t, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) emit(i, segment_ids[i], weights[i]);
      });
    }
    const bool ascending = p.plan != nullptr ? p.plan->ascending : Ascends(segment_ids, n, executor);
    if (ascending) {  // a segment is one run of ids
      return cpu::ForEachChunkUntilStopped(executor, chunks, [&](int64_t, int64_t chunk_begin, int64_t chunk_end) {
        ForEachRun(segment_ids, n, chunk_begin, chunk_end, [&](int64_t begin, int64_t end) {
          const A divisor = DivisorOfRun(p.combiner, p.weights->divisor, weights, begin, end, ctx);
          for (int64_t i = begin; i < end; ++i) emit(i, segment_ids[begin], Divide(weights[i], divisor));
        });
      });
    }
    const Result<Scratch<A>> divisors = MakeDivisors<A>(p, segment_ids, counts, weights, ctx);
    if (!divisors.ok()) return divisors.status();
    return cpu::ForEachChunkUntilStopped(executor, chunks, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        emit(i, segment_ids[i], Divide(weights[i], (*divisors)[segment_ids[i]]));
      }
    });
  });
}

// Calls set(k) for every contribution k, on any threads.
template <class F>
Status ForEachContribution(int64_t n, const Context& ctx, const F& set) noexcept {
  Executor& executor = ExecutorOf(ctx);
  return cpu::ForEachChunkUntilStopped(executor, cpu::SplitEvenly(executor, n, kWeightGrain),
                                       [&](int64_t, int64_t begin, int64_t end) {
                                         for (int64_t k = begin; k < end; ++k) set(k);
                                       });
}

// The factors of the contributions of a plan that knows their positions.
template <class A, class C>
Result<Scratch<A>> FactorsOf(const GradProblem& p, const Plan<C>& plan, const Context& ctx) noexcept {
  const Result<WideWeights<A>> weights = WideWeights<A>::Make(p.weights->values, ctx);
  if (!weights.ok()) return weights.status();
  const A* by_position = weights->data();
  Scratch<A> divided;
  if (p.combiner != SegmentCombiner::kSum) {
    Result<Scratch<A>> made = Scratch<A>::Make(ctx, p.ids.n());
    if (!made.ok()) return made;
    divided = *std::move(made);
    by_position = divided.data();
    const Status filled = ForEachFactor(p, plan.counts.data(), weights->data(), ctx,
                                        [&](int64_t i, int64_t, A factor) { divided[i] = factor; });
    if (!filled.ok()) return filled;
  }
  Result<Scratch<A>> factors = Scratch<A>::Make(ctx, p.ids.n());
  if (!factors.ok()) return factors;
  const Status set =
      ForEachContribution(p.ids.n(), ctx, [&](int64_t k) { (*factors)[k] = by_position[plan.positions[k]]; });
  if (!set.ok()) return set;
  return factors;
}

// The same for a plan whose contributions have positions in place of segments. They get their segments: one look-up in
// random order per contribution for both.
template <class A, class C>
Result<Scratch<A>> TakeFactors(const GradProblem& p, const Context& ctx, Plan<C>& plan) noexcept {
  struct Both {
    std::conditional_t<std::is_same_v<C, Contribution>, uint32_t, int64_t> segment;
    A factor;
  };
  Result<Scratch<Both>> by_position = Scratch<Both>::Make(ctx, p.ids.n());
  if (!by_position.ok()) return by_position.status();
  {
    const Result<WideWeights<A>> weights = WideWeights<A>::Make(p.weights->values, ctx);
    if (!weights.ok()) return weights.status();
    const Status filled =
        ForEachFactor(p, plan.counts.data(), weights->data(), ctx, [&](int64_t i, int64_t segment, A factor) {
          (*by_position)[i] = {static_cast<decltype(Both::segment)>(segment), factor};
        });
    if (!filled.ok()) return filled;
  }
  Result<Scratch<A>> factors = Scratch<A>::Make(ctx, p.ids.n());
  if (!factors.ok()) return factors;
  const Status set = ForEachContribution(p.ids.n(), ctx, [&](int64_t k) {
    C& contribution = plan.contributions[k];
    const Both& both = (*by_position)[contribution.segment()];
    contribution = C::Make(contribution.row, static_cast<uint64_t>(both.segment));
    (*factors)[k] = both.factor;
  });
  if (!set.ok()) return set;
  return factors;
}

}  // namespace raggrad::sparse_segment
