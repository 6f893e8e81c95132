// The factor w(i) / D(s) of each contribution of a weighted gradient (segment_pooling.h). Internal to the family.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

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

// Sets factors[i] for every id i.
template <class A>
Status FillFactors(const GradProblem& p, const int64_t* counts, const A* weights, const Context& ctx,
                   A* factors) noexcept {
  const int64_t n = p.ids.n();
  Executor& executor = ExecutorOf(ctx);
  const cpu::Chunks chunks = cpu::SplitEvenly(executor, n, kWeightGrain);
  return Visit(IndexTypes{}, p.ids.segment_ids.dtype, [&]<class Seg>() -> Status {
    const Seg* const segment_ids = p.ids.segment_ids.As<Seg>();
    if (p.combiner == SegmentCombiner::kSum) {
      return cpu::ForEachChunkUntilStopped(executor, chunks, [&](int64_t, int64_t begin, int64_t end) {
        std::copy(weights + begin, weights + end, factors + begin);
      });
    }
    const bool ascending = p.plan != nullptr ? p.plan->ascending : Ascends(segment_ids, n, executor);
    if (ascending) {  // a segment is one run of ids
      return cpu::ForEachChunkUntilStopped(executor, chunks, [&](int64_t, int64_t chunk_begin, int64_t chunk_end) {
        ForEachRun(segment_ids, n, chunk_begin, chunk_end, [&](int64_t begin, int64_t end) {
          const A divisor = DivisorOfRun(p.combiner, p.weights->divisor, weights, begin, end, ctx);
          for (int64_t i = begin; i < end; ++i) factors[i] = Divide(weights[i], divisor);
        });
      });
    }
    const Result<Scratch<A>> divisors = MakeDivisors<A>(p, segment_ids, counts, weights, ctx);
    if (!divisors.ok()) return divisors.status();
    return cpu::ForEachChunkUntilStopped(executor, chunks, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) factors[i] = Divide(weights[i], (*divisors)[segment_ids[i]]);
    });
  });
}

// The factors in the order of the ids, which are checked and, if the combiner needs that, counted.
template <class A>
Result<Scratch<A>> MakeFactors(const GradProblem& p, const int64_t* counts, const Context& ctx) noexcept {
  const Result<WideWeights<A>> weights = WideWeights<A>::Make(p.weights->values, ctx);
  if (!weights.ok()) return weights.status();
  Result<Scratch<A>> factors = Scratch<A>::Make(ctx, p.ids.n());
  if (!factors.ok()) return factors;
  if (Status s = FillFactors(p, counts, weights->data(), ctx, factors->data()); !s.ok()) return s;
  return factors;
}

// The factors in the order of the contributions of a plan that knows their positions.
template <class A, class C>
Result<Scratch<A>> FactorsOf(const GradProblem& p, const Plan<C>& plan, const Context& ctx) noexcept {
  Result<Scratch<A>> factors = Scratch<A>::Make(ctx, p.ids.n());
  if (!factors.ok()) return factors;
  const auto take = [&](const A* by_position) {
    Executor& executor = ExecutorOf(ctx);
    return cpu::ForEachChunkUntilStopped(executor, cpu::SplitEvenly(executor, p.ids.n(), kWeightGrain),
                                         [&](int64_t, int64_t begin, int64_t end) {
                                           for (int64_t k = begin; k < end; ++k)
                                             (*factors)[k] = by_position[plan.positions[k]];
                                         });
  };
  if (p.combiner == SegmentCombiner::kSum) {  // the weights themselves, where they lie
    const Result<WideWeights<A>> weights = WideWeights<A>::Make(p.weights->values, ctx);
    if (!weights.ok()) return weights.status();
    if (Status s = take(weights->data()); !s.ok()) return s;
    return factors;
  }
  const Result<Scratch<A>> by_position = MakeFactors<A>(p, plan.counts.data(), ctx);
  if (!by_position.ok()) return by_position.status();
  if (Status s = take(by_position->data()); !s.ok()) return s;
  return factors;
}

}  // namespace raggrad::sparse_segment
