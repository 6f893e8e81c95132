#include "raggrad/ops/sparse_segment/plan/plan_cpu.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "raggrad/core/error_text.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/radix_sort.h"
#include "raggrad/ops/sparse_segment/fault.h"
#include "raggrad/ops/sparse_segment/ids.h"

namespace raggrad::sparse_segment {
namespace {

using cpu::Chunks;
using cpu::ForEachChunkUntilStopped;
using cpu::SplitEvenly;

constexpr int64_t kGrain = 1 << 14;       // ids per chunk at least
constexpr int64_t kPackBlock = 1 << 10;   // ids that are checked before they are packed
constexpr int64_t kCountedIds = 1 << 15;  // the most ids that are sorted by counting

// The fault that a serial check in TensorFlow's order meets first. Called only if there is one.
template <class Idx, class Segments>
Status FirstFault(const SegmentIds& ids, const Segments& segment_ids) noexcept {
  const Idx* indices = ids.indices.As<Idx>();
  const auto bad_segment = [&](int64_t i) { return !InRange(segment_ids[i], ids.num_segments); };
  if (ids.segments_first) {
    for (int64_t i = 0; i < ids.n(); ++i) {
      if (bad_segment(i)) return SegmentError(ids.op, i, segment_ids[i], ids.num_segments);
    }
  }
  for (int64_t i = 0; i < ids.n(); ++i) {
    if (!InRange(indices[i], ids.table_rows)) return IndexError(ids.op, i, indices[i], ids.table_rows);
    if (bad_segment(i)) return SegmentError(ids.op, i, segment_ids[i], ids.num_segments);
  }
  return MakeError(Code::kInternal, ids.op, ": indices or segment_ids changed during the call");
}

// Stands in for segment ids if every position is its own segment.
struct Iota {
  int64_t operator[](int64_t i) const noexcept { return i; }
};

// Whether all indices and segment ids [begin, end) are in range.
template <class Idx, class Segments>
bool AllInRange(const SegmentIds& ids, const Idx* indices, const Segments& segment_ids, int64_t begin,
                int64_t end) noexcept {
  int64_t sign = 0;  // no branches and no 64-bit compares (SSE2 lacks them), so it vectorises
  for (int64_t i = begin; i < end; ++i) {
    sign |= NegativeIfOutOfRange(indices[i], ids.table_rows) | NegativeIfOutOfRange(segment_ids[i], ids.num_segments);
  }
  return sign >= 0;
}

// Adds without races if several chunks count at the same time.
void AddCount(int64_t& count, int64_t more, bool shared) noexcept {
  if (shared) {
    std::atomic_ref(count).fetch_add(more, std::memory_order_relaxed);
  } else {
    count += more;
  }
}

// counts[s] += how often s occurs in segment_ids [begin, end). Segment ids mostly come in runs, so memory is touched
// once per run.
template <class Segments>
void CountRuns(const Segments& segment_ids, int64_t begin, int64_t end, bool shared, int64_t* counts) noexcept {
  for (int64_t run_start = begin, i = begin; i < end; ++i) {
    if (i + 1 < end && segment_ids[i + 1] == segment_ids[i]) continue;
    AddCount(counts[segment_ids[i]], i + 1 - run_start, shared);
    run_start = i + 1;
  }
}

// Calls f with the second members that contributions have while they are sorted: their segments, or their positions,
// which callers replace by the segments afterwards.
template <class Segments, class F>
void VisitSeconds(const Segments& segment_ids, bool positions, const F& f) noexcept {
  if (positions) {
    f(Iota{});
  } else {
    f(segment_ids);
  }
}

// Checks the ids, counts the segments (if counts is not null) and writes the contributions in order, in one pass.
// Returns whether they are sorted by row already.
template <class Idx, class Segments, class C>
Result<bool> Pack(const SegmentIds& ids, const Idx* indices, const Segments& segment_ids, bool positions,
                  Executor& executor, C* contributions, int64_t* counts) noexcept {
  const Chunks chunks = SplitEvenly(executor, ids.n(), kGrain);
  std::atomic<bool> fault = false;
  std::atomic<bool> unsorted = false;
  const bool shared = chunks.count > 1 && executor.num_workers() > 1;
  Status packed = ForEachChunkUntilStopped(executor, chunks, [&](int64_t, int64_t begin, int64_t end) {
    bool ascending = begin == 0 || indices[begin - 1] <= indices[begin];
    // Blocks stay in the L1 cache between the loops.
    for (int64_t block = begin; block < end; block += kPackBlock) {
      const int64_t block_end = std::min(block + kPackBlock, end);
      if (!AllInRange(ids, indices, segment_ids, block, block_end)) {
        fault.store(true, std::memory_order_relaxed);
        return;
      }
      VisitSeconds(segment_ids, positions, [&](const auto& seconds) {
        for (int64_t i = block; i < block_end; ++i) {
          contributions[i] = C::Make(static_cast<uint32_t>(indices[i]), static_cast<uint64_t>(seconds[i]));
        }
      });
      if (ascending) ascending = std::is_sorted(indices + std::max(block, begin + 1) - 1, indices + block_end);
      if (counts != nullptr) CountRuns(segment_ids, block, block_end, shared, counts);
    }
    if (!ascending) unsorted.store(true, std::memory_order_relaxed);
  });
  if (!packed.ok()) return packed;
  if (fault) return FirstFault<Idx>(ids, segment_ids);
  return !unsorted;
}

template <class Seg>
Status CheckLastSegment(const SegmentIds& ids) noexcept {
  const Seg last = ids.segment_ids.As<Seg>()[ids.n() - 1];
  if (static_cast<int64_t>(last) < ids.num_segments) return {};
  return LastSegmentError(ids.op, ids.n() - 1, last, ids.num_segments);
}

// Calls f(indices, segment_ids) with pointers, or an Iota for the segment ids.
template <class F>
auto VisitIds(const SegmentIds& ids, const F& f) noexcept {
  using R = decltype(f(static_cast<const int32_t*>(nullptr), Iota{}));
  return Visit(IndexTypes{}, ids.indices.dtype, [&]<class Idx>() -> R {
    if (ids.position_is_segment()) return f(ids.indices.As<Idx>(), Iota{});
    return Visit(IndexTypes{}, ids.segment_ids.dtype, [&]<class Seg>() -> R {
      if (Status s = CheckLastSegment<Seg>(ids); !s.ok()) return s;
      return f(ids.indices.As<Idx>(), ids.segment_ids.As<Seg>());
    });
  });
}

// Makes what is carried, in the order of the ids, and room for it in another order.
template <class C, class A>
Status MakeCarried(int64_t n, const Context& ctx, const Plan<C>& plan, Carried<A>& carried,
                   Scratch<A>& by_id) noexcept {
  Result<Scratch<A>> made = carried.make(plan.counts.data());
  if (!made.ok()) return made.status();
  by_id = *std::move(made);
  Result<Scratch<A>> sorted = Scratch<A>::Make(ctx, n);
  if (!sorted.ok()) return sorted.status();
  carried.sorted = *std::move(sorted);
  return {};
}

// Sorts few ids of a table that is not much larger: a counter per table row tells where contributions go and where rows
// begin. This takes half the passes of a radix sort.
template <class Idx, class Segments, class C, class A>
Status PlanByCounting(const SegmentIds& ids, const Idx* indices, const Segments& segment_ids, bool positions,
                      const Context& ctx, Plan<C>& plan, Carried<A>* carried) noexcept {
  const int64_t n = ids.n();
  const int64_t table_rows = ids.table_rows;
  if (!AllInRange(ids, indices, segment_ids, 0, n)) return FirstFault<Idx>(ids, segment_ids);
  if (plan.counts.data() != nullptr) CountRuns(segment_ids, 0, n, /*shared=*/false, plan.counts.data());
  Result<Scratch<uint32_t>> counters = Scratch<uint32_t>::Make(ctx, table_rows);
  if (!counters.ok()) return counters.status();
  uint32_t* const place = counters->data();
  std::fill_n(place, table_rows, 0);
  for (int64_t i = 0; i < n; ++i) ++place[indices[i]];

  uint32_t num_unique = 0;  // as wide as the counters, so that the loop vectorises
  for (int64_t r = 0; r < table_rows; ++r) num_unique += place[r] != 0 ? 1 : 0;
  plan.num_unique = num_unique;
  Result<Scratch<int64_t>> row_starts = Scratch<int64_t>::Make(ctx, plan.num_unique + 1);
  if (!row_starts.ok()) return row_starts.status();
  plan.row_starts = *std::move(row_starts);
  int64_t* row = plan.row_starts.data();
  uint32_t next = 0;
  for (int64_t r = 0; r < table_rows; ++r) {  // counts become places; without a branch, as in FindRows
    const uint32_t count = std::exchange(place[r], next);
    *row = next;
    row += count != 0 ? 1 : 0;
    next += count;
  }
  *row = n;
  C* const contributions = plan.contributions.data();
  Scratch<A> by_id;
  if (carried != nullptr) {
    if (Status s = MakeCarried(n, ctx, plan, *carried, by_id); !s.ok()) return s;
  }
  VisitSeconds(segment_ids, positions, [&](const auto& seconds) {
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t k = place[indices[i]]++;
      contributions[k] = C::Make(static_cast<uint32_t>(indices[i]), static_cast<uint64_t>(seconds[i]));
      if (carried != nullptr) carried->sorted[k] = by_id[i];
    }
  });
  return {};
}

// The key by which contributions are sorted. With a lambda of SortByRow each type that is carried would have a sort of
// its own for nothing carried.
struct RowOf {
  template <class C>
  uint32_t operator()(const C& contribution) const noexcept {
    return contribution.row;
  }
};

// Sorts packed contributions by their rows.
template <class C, class A>
Status SortByRow(const SegmentIds& ids, const Context& ctx, Plan<C>& plan, Carried<A>* carried) noexcept {
  Result<Scratch<C>> spare = Scratch<C>::Make(ctx, ids.n());
  if (!spare.ok()) return spare.status();
  const cpu::SortBuffers buffers = {plan.contributions.data(), spare->data()};
  const int key_bits = static_cast<int>(std::bit_width(static_cast<uint32_t>(ids.table_rows - 1)));
  Scratch<A> by_id;
  if (carried != nullptr) {
    if (Status s = MakeCarried(ids.n(), ctx, plan, *carried, by_id); !s.ok()) return s;
  }
  const Result<C*> sorted = carried == nullptr ? cpu::RadixSort(ctx, buffers, ids.n(), key_bits, RowOf())
                                               : cpu::RadixSort(ctx, buffers, ids.n(), key_bits, RowOf(),
                                                                cpu::SortBuffers{by_id.data(), carried->sorted.data()});
  if (!sorted.ok()) return sorted.status();
  if (*sorted == buffers.spare) {
    std::swap(plan.contributions, *spare);
  } else if (carried != nullptr) {
    std::swap(carried->sorted, by_id);
  }
  return {};
}

// Finds where the runs of equal rows begin, in two passes: counts them per chunk, then writes.
template <class C>
Status FindRows(const Context& ctx, int64_t n, Plan<C>& plan) noexcept {
  Executor& executor = ExecutorOf(ctx);
  const Chunks chunks = SplitEvenly(executor, n, kGrain);
  const C* contributions = plan.contributions.data();
  const auto starts_row = [&](int64_t i) { return i == 0 || contributions[i - 1].row != contributions[i].row; };

  Result<Scratch<int64_t>> first_row = Scratch<int64_t>::Make(ctx, chunks.count);
  if (!first_row.ok()) return first_row.status();
  Status counted = ForEachChunkUntilStopped(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    int64_t count = 0;
    for (int64_t i = begin; i < end; ++i) count += starts_row(i) ? 1 : 0;
    (*first_row)[chunk] = count;
  });
  if (!counted.ok()) return counted;
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    plan.num_unique += std::exchange((*first_row)[chunk], plan.num_unique);
  }

  Result<Scratch<int64_t>> row_starts = Scratch<int64_t>::Make(ctx, plan.num_unique + 1);
  if (!row_starts.ok()) return row_starts.status();
  plan.row_starts = *std::move(row_starts);
  plan.row_starts[plan.num_unique] = n;
  return ForEachChunkUntilStopped(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    // Every i is written, and the first of each row is kept: a branch would be mispredicted half the time.
    int64_t* row = plan.row_starts.data() + (*first_row)[chunk];
    const int64_t* const unique_end =
        plan.row_starts.data() + (chunk + 1 < chunks.count ? (*first_row)[chunk + 1] : plan.num_unique);
    for (int64_t i = begin; i < end && row < unique_end; ++i) {
      *row = i;
      row += starts_row(i) ? 1 : 0;
    }
  });
}

}  // namespace

template <class C, class A>
Result<Plan<C>> MakePlan(const SegmentIds& ids, const PlanParts& parts, const Context& ctx,
                         Carried<A>* carried) noexcept {
  Executor& executor = ExecutorOf(ctx);
  Plan<C> plan;

  if (parts.counts) {
    Result<Scratch<int64_t>> counts = Scratch<int64_t>::Make(ctx, ids.num_segments);
    if (!counts.ok()) return counts.status();
    plan.counts = *std::move(counts);
    const Chunks chunks = SplitEvenly(executor, ids.num_segments, kGrain);
    Status zeroed = ForEachChunkUntilStopped(executor, chunks, [&](int64_t, int64_t begin, int64_t end) {
      std::fill_n(plan.counts.data() + begin, end - begin, int64_t{0});
    });
    if (!zeroed.ok()) return zeroed;
  }

  Result<Scratch<C>> contributions = Scratch<C>::Make(ctx, ids.n());
  if (!contributions.ok()) return contributions.status();
  plan.contributions = *std::move(contributions);
  // Two counters per id take no more memory than a second array of contributions would.
  if (ids.n() <= kCountedIds && ids.table_rows <= 2 * ids.n()) {
    const Status planned = VisitIds(ids, [&](const auto* indices, const auto& segment_ids) {
      return PlanByCounting(ids, indices, segment_ids, parts.positions, ctx, plan, carried);
    });
    if (!planned.ok()) return planned;
    return plan;
  }
  const Result<bool> sorted = VisitIds(ids, [&](const auto* indices, const auto& segment_ids) {
    return Pack(ids, indices, segment_ids, parts.positions, executor, plan.contributions.data(), plan.counts.data());
  });
  if (!sorted.ok()) return sorted.status();

  if (!*sorted) {
    if (Status s = SortByRow(ids, ctx, plan, carried); !s.ok()) return s;
  } else if (carried != nullptr) {
    Result<Scratch<A>> made = carried->make(plan.counts.data());
    if (!made.ok()) return made.status();
    carried->sorted = *std::move(made);
  }
  if (Status s = FindRows(ctx, ids.n(), plan); !s.ok()) return s;
  return plan;
}

Status KeepPositions(const SegmentIds& ids, const Context& ctx, Plan<Contribution>& plan) noexcept {
  Result<Scratch<uint32_t>> positions = Scratch<uint32_t>::Make(ctx, ids.n());
  if (!positions.ok()) return positions.status();
  plan.positions = *std::move(positions);
  Executor& executor = ExecutorOf(ctx);
  return VisitIds(ids, [&](const auto*, const auto& segment_ids) {
    return ForEachChunkUntilStopped(executor, SplitEvenly(executor, ids.n(), kGrain),
                                    [&](int64_t, int64_t begin, int64_t end) {
                                      for (int64_t k = begin; k < end; ++k) {
                                        Contribution& contribution = plan.contributions[k];
                                        const uint32_t i = contribution.segment_;
                                        plan.positions[k] = i;
                                        contribution.segment_ = static_cast<uint32_t>(segment_ids[i]);
                                      }
                                    });
  });
}

template Result<Plan<Contribution>> MakePlan(const SegmentIds&, const PlanParts&, const Context&,
                                             Carried<float>*) noexcept;
template Result<Plan<Contribution>> MakePlan(const SegmentIds&, const PlanParts&, const Context&,
                                             Carried<double>*) noexcept;
template Result<Plan<WideContribution>> MakePlan(const SegmentIds&, const PlanParts&, const Context&,
                                                 Carried<float>*) noexcept;
template Result<Plan<WideContribution>> MakePlan(const SegmentIds&, const PlanParts&, const Context&,
                                                 Carried<double>*) noexcept;

}  // namespace raggrad::sparse_segment
