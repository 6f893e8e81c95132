// Runs of equal segment ids, and the divisor of one. Internal to the family.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "raggrad/core/context.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/ops/sparse_segment/weights/divisor.h"
#include "raggrad/ops/sparse_segment/weights/order_free_sum.h"

namespace raggrad::sparse_segment {

inline bool IsReproducible(const Context& ctx) noexcept { return ctx.accumulation == Accumulation::kReproducible; }

inline constexpr int64_t kWeightGrain = 1 << 14;  // ids per chunk at least

// Calls f(begin, end) for every run of equal segment ids that starts in [begin, end). The last one may end behind it.
// So every run belongs to one of the chunks that ids are cut into.
template <class Seg, class F>
void ForEachRun(const Seg* segment_ids, int64_t n, int64_t begin, int64_t end, const F& f) noexcept {
  int64_t i = begin;
  while (i > 0 && i < end && segment_ids[i] == segment_ids[i - 1]) ++i;
  while (i < end) {
    const int64_t start = i;
    do ++i;
    while (i < n && segment_ids[i] == segment_ids[start]);
    f(start, i);
  }
}

// Whether ids [begin, end), which are equal, are all of their run.
template <class Seg>
bool IsWholeRun(const Seg* segment_ids, int64_t n, int64_t begin, int64_t end) noexcept {
  return (begin == 0 || segment_ids[begin - 1] != segment_ids[begin]) &&
         (end == n || segment_ids[end] != segment_ids[begin]);
}

// Calls f(begin, end) for every run of equal segment ids that lies in more than one chunk.
template <class Seg, class F>
void ForEachCutRun(const Seg* segment_ids, const cpu::Chunks& chunks, const F& f) noexcept {
  for (int64_t chunk = 1; chunk < chunks.count; ++chunk) {
    const int64_t cut = chunks.begin(chunk);
    const auto continues = [&](int64_t i) { return segment_ids[i] == segment_ids[cut]; };
    int64_t begin = cut;
    while (begin > chunks.begin(chunk - 1) && continues(begin - 1)) --begin;
    if (begin == cut || !IsWholeRun(segment_ids, cut, begin, cut)) continue;  // no run, or one of the cut before
    int64_t end = cut;
    while (end < chunks.size && continues(end)) ++end;
    f(begin, end);
  }
}

// D(s) of the segment of ids [begin, end), summed as the call asks.
template <class A>
A DivisorOfRun(SegmentCombiner combiner, WeightDivisor divisor, const A* weights, int64_t begin, int64_t end,
               const Context& ctx) noexcept {
  if (combiner == SegmentCombiner::kSum || divisor == WeightDivisor::kCount || !IsReproducible(ctx)) {
    return DivisorOf(combiner, divisor, weights, begin, end);
  }
  const auto term = [&](int64_t i) { return DivisorTerm(combiner, weights[i]); };
  return WeightsDivisor(combiner, SumOrderFree<A>(begin, end, term));
}

// Whether the segment ids ascend.
template <class Seg>
bool Ascends(const Seg* segment_ids, int64_t n, Executor& executor) noexcept {
  std::atomic<bool> ascends = true;
  cpu::ForEachChunk(executor, cpu::SplitEvenly(executor, n, kWeightGrain), [&](int64_t, int64_t begin, int64_t end) {
    bool sorted = true;  // no branch per id, so the loop vectorises
    for (int64_t i = std::max<int64_t>(begin, 1); i < end; ++i) sorted &= segment_ids[i - 1] <= segment_ids[i];
    if (!sorted) ascends.store(false, std::memory_order_relaxed);
  });
  return ascends;
}

}  // namespace raggrad::sparse_segment
