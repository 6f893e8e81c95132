#include "raggrad/ops/sparse_segment/plan.h"

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

using ::raggrad::cpu::Chunks;
using ::raggrad::cpu::ForEachChunkUntilStopped;
using ::raggrad::cpu::SplitEvenly;

constexpr int64_t kGrain = 1 << 14;       // ids per chunk at least
constexpr int64_t kPackBlock = 1 << 10;   // ids that are checked before they are packed
constexpr int64_t kCountedIds = 1 << 15;  // at most so many are sorted by counting their rows

// The fault that a serial check in TensorFlow's order meets first. Only called when there is one.
template <class Idx, class Segments>
Status FirstFault(const Problem& p, const Segments& segment_ids) noexcept {
  const Idx* indices = p.indices.As<Idx>();
  const auto bad_segment = [&](int64_t i) { return !InRange(segment_ids[i], p.segments()); };
  if (p.segments_first) {
    for (int64_t i = 0; i < p.n(); ++i) {
      if (bad_segment(i)) return SegmentError(p.op, i, segment_ids[i], p.segments());
    }
  }
  for (int64_t i = 0; i < p.n(); ++i) {
    if (!InRange(indices[i], p.dim0)) return IndexError(p.op, i, indices[i], p.dim0);
    if (bad_segment(i)) return SegmentError(p.op, i, segment_ids[i], p.segments());
  }
  return MakeError(Code::kInternal, p.op, ": indices or segment_ids changed during the call");
}

// Stands for segment ids when every id is its own segment.
struct Iota {
  int64_t operator[](int64_t i) const noexcept { return i; }
};

// Whether all indices and segment ids [begin, end) are in range.
template <class Idx, class Segments>
bool AllInRange(const Problem& p, const Idx* indices, const Segments& segment_ids, int64_t begin,
                int64_t end) noexcept {
  int64_t sign = 0;  // no branches, and no comparisons of 64 bits, which SSE2 has not: this becomes vector code
  for (int64_t i = begin; i < end; ++i) {
    sign |= NegativeIfOutOfRange(indices[i], p.dim0) | NegativeIfOutOfRange(segment_ids[i], p.segments());
  }
  return sign >= 0;
}

// Without races when several chunks count at the same time.
void AddCount(int64_t& count, int64_t more, bool shared) noexcept {
  if (shared) {
    std::atomic_ref(count).fetch_add(more, std::memory_order_relaxed);
  } else {
    count += more;
  }
}

// counts[s] += how often s comes in segment_ids [begin, end). Segment ids mostly come in runs: one addition to memory
// for each.
template <class Segments>
void CountRuns(const Segments& segment_ids, int64_t begin, int64_t end, bool shared, int64_t* counts) noexcept {
  for (int64_t run_start = begin, i = begin; i < end; ++i) {
    if (i + 1 < end && segment_ids[i + 1] == segment_ids[i]) continue;
    AddCount(counts[segment_ids[i]], i + 1 - run_start, shared);
    run_start = i + 1;
  }
}

// One pass over the ids: checks them, counts the segments (if counts is not null), writes the contributions in order.
// Whether they are sorted by row already.
template <class Idx, class Segments, class C>
Result<bool> Pack(const Problem& p, const Idx* indices, const Segments& segment_ids, Parallel& parallel,
                  C* contributions, int64_t* counts) noexcept {
  const Chunks chunks = SplitEvenly(parallel, p.n(), kGrain);
  std::atomic<bool> fault = false;
  std::atomic<bool> unsorted = false;
  const bool shared = chunks.count > 1 && parallel.num_workers() > 1;
  Status packed = ForEachChunkUntilStopped(parallel, chunks, [&](int64_t, int64_t begin, int64_t end) {
    bool ascending = begin == 0 || indices[begin - 1] <= indices[begin];
    // Blocks stay in the L1 cache between the loops.
    for (int64_t block = begin; block < end; block += kPackBlock) {
      const int64_t block_end = std::min(block + kPackBlock, end);
      if (!AllInRange(p, indices, segment_ids, block, block_end)) {
        fault.store(true, std::memory_order_relaxed);
        return;
      }
      for (int64_t i = block; i < block_end; ++i) {
        contributions[i] = C::Make(static_cast<uint32_t>(indices[i]), static_cast<uint64_t>(segment_ids[i]));
      }
      if (ascending) ascending = std::is_sorted(indices + std::max(block, begin + 1) - 1, indices + block_end);
      if (counts != nullptr) CountRuns(segment_ids, block, block_end, shared, counts);
    }
    if (!ascending) unsorted.store(true, std::memory_order_relaxed);
  });
  if (!packed.ok()) return packed;
  if (fault) return FirstFault<Idx>(p, segment_ids);
  return !unsorted;
}

template <class Seg>
Status CheckLastSegment(const Problem& p) noexcept {
  const Seg last = p.segment_ids.As<Seg>()[p.n() - 1];
  if (static_cast<int64_t>(last) < p.segments()) return {};
  return LastSegmentError(p.op, p.n() - 1, last, p.segments());
}

// f(indices, segment_ids), with something for each that has the operator [].
template <class F>
auto VisitIds(const Problem& p, const F& f) noexcept {
  using R = decltype(f(static_cast<const int32_t*>(nullptr), Iota{}));
  return Visit(IndexTypes{}, p.indices.dtype, [&]<class Idx>() -> R {
    if (p.id_is_segment()) return f(p.indices.As<Idx>(), Iota{});
    return Visit(IndexTypes{}, p.segment_ids.dtype, [&]<class Seg>() -> R {
      if (Status s = CheckLastSegment<Seg>(p); !s.ok()) return s;
      return f(p.indices.As<Idx>(), p.segment_ids.As<Seg>());
    });
  });
}

// For few ids of a table that is not much larger, a counter for each of its rows tells where contributions go and rows
// begin: half the passes of a radix sort.
template <class Idx, class Segments, class C>
Status PlanByCounting(const Problem& p, const Idx* indices, const Segments& segment_ids, const Context& ctx,
                      Plan<C>& plan) noexcept {
  const int64_t n = p.n();
  const int64_t dim0 = p.dim0;
  if (!AllInRange(p, indices, segment_ids, 0, n)) return FirstFault<Idx>(p, segment_ids);
  if (plan.counts.data() != nullptr) CountRuns(segment_ids, 0, n, /*shared=*/false, plan.counts.data());
  Result<Scratch<uint32_t>> counters = Scratch<uint32_t>::Make(ctx, dim0);
  if (!counters.ok()) return counters.status();
  uint32_t* const place = counters->data();
  std::fill_n(place, dim0, 0);
  for (int64_t i = 0; i < n; ++i) ++place[indices[i]];

  uint32_t rows = 0;  // of the counters' width: vector code
  for (int64_t r = 0; r < dim0; ++r) rows += place[r] != 0 ? 1 : 0;
  plan.rows = rows;
  Result<Scratch<int64_t>> row_starts = Scratch<int64_t>::Make(ctx, plan.rows + 1);
  if (!row_starts.ok()) return row_starts.status();
  plan.row_starts = *std::move(row_starts);
  int64_t* row = plan.row_starts.data();
  uint32_t next = 0;
  for (int64_t r = 0; r < dim0; ++r) {  // counts become places; without a branch, as in FindRows
    const uint32_t count = std::exchange(place[r], next);
    *row = next;
    row += count != 0 ? 1 : 0;
    next += count;
  }
  *row = n;
  C* const contributions = plan.contributions.data();
  for (int64_t i = 0; i < n; ++i) {
    contributions[place[indices[i]]++] =
        C::Make(static_cast<uint32_t>(indices[i]), static_cast<uint64_t>(segment_ids[i]));
  }
  return {};
}

// Where the runs of equal rows begin, in two passes: count per chunk, then write.
template <class C>
Status FindRows(const Context& ctx, int64_t n, Plan<C>& plan) noexcept {
  Parallel& parallel = ctx.executor();
  const Chunks chunks = SplitEvenly(parallel, n, kGrain);
  const C* contributions = plan.contributions.data();
  const auto starts_row = [&](int64_t i) { return i == 0 || contributions[i - 1].row != contributions[i].row; };

  Result<Scratch<int64_t>> first_row = Scratch<int64_t>::Make(ctx, chunks.count);
  if (!first_row.ok()) return first_row.status();
  Status counted = ForEachChunkUntilStopped(parallel, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    int64_t count = 0;
    for (int64_t i = begin; i < end; ++i) count += starts_row(i) ? 1 : 0;
    (*first_row)[chunk] = count;
  });
  if (!counted.ok()) return counted;
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    plan.rows += std::exchange((*first_row)[chunk], plan.rows);
  }

  Result<Scratch<int64_t>> row_starts = Scratch<int64_t>::Make(ctx, plan.rows + 1);
  if (!row_starts.ok()) return row_starts.status();
  plan.row_starts = *std::move(row_starts);
  plan.row_starts[plan.rows] = n;
  return ForEachChunkUntilStopped(parallel, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    // Written for every i and kept for the first of each row: a branch would be mispredicted half the time.
    int64_t* row = plan.row_starts.data() + (*first_row)[chunk];
    const int64_t* const rows_end =
        plan.row_starts.data() + (chunk + 1 < chunks.count ? (*first_row)[chunk + 1] : plan.rows);
    for (int64_t i = begin; i < end && row < rows_end; ++i) {
      *row = i;
      row += starts_row(i) ? 1 : 0;
    }
  });
}

}  // namespace

template <class C>
Result<Plan<C>> MakePlan(const Problem& problem, bool count_segments, const Context& ctx) noexcept {
  Parallel& parallel = ctx.executor();
  Plan<C> plan;

  if (count_segments) {
    Result<Scratch<int64_t>> counts = Scratch<int64_t>::Make(ctx, problem.segments());
    if (!counts.ok()) return counts.status();
    plan.counts = *std::move(counts);
    const Chunks chunks = SplitEvenly(parallel, problem.segments(), kGrain);
    Status zeroed = ForEachChunkUntilStopped(parallel, chunks, [&](int64_t, int64_t begin, int64_t end) {
      std::fill_n(plan.counts.data() + begin, end - begin, int64_t{0});
    });
    if (!zeroed.ok()) return zeroed;
  }

  Result<Scratch<C>> contributions = Scratch<C>::Make(ctx, problem.n());
  if (!contributions.ok()) return contributions.status();
  plan.contributions = *std::move(contributions);
  // Counters then take no more memory than the records that are sorted.
  if (problem.n() <= kCountedIds && problem.dim0 <= 2 * problem.n()) {
    const Status planned = VisitIds(problem, [&](const auto* indices, const auto& segment_ids) {
      return PlanByCounting(problem, indices, segment_ids, ctx, plan);
    });
    if (!planned.ok()) return planned;
    return plan;
  }
  const Result<bool> sorted = VisitIds(problem, [&](const auto* indices, const auto& segment_ids) {
    return Pack(problem, indices, segment_ids, parallel, plan.contributions.data(), plan.counts.data());
  });
  if (!sorted.ok()) return sorted.status();

  if (!*sorted) {
    Result<Scratch<C>> spare = Scratch<C>::Make(ctx, problem.n());
    if (!spare.ok()) return spare.status();
    const int key_bits = static_cast<int>(std::bit_width(static_cast<uint32_t>(problem.dim0 - 1)));
    const Result<C*> result = ::raggrad::cpu::RadixSort(ctx, plan.contributions.data(), spare->data(), problem.n(),
                                                        key_bits, [](const C& c) { return c.row; });
    if (!result.ok()) return result.status();
    if (*result == spare->data()) std::swap(plan.contributions, *spare);
  }
  if (Status s = FindRows(ctx, problem.n(), plan); !s.ok()) return s;
  return plan;
}

template Result<Plan<Contribution>> MakePlan(const Problem&, bool, const Context&) noexcept;
template Result<Plan<WideContribution>> MakePlan(const Problem&, bool, const Context&) noexcept;

}  // namespace raggrad::sparse_segment
