// Accumulation::kReproducible in the CPU backend of the gradients: magnitudes, split of the row loop over workers.
#pragma once

#include <algorithm>

#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/exact_split.h"
#include "raggrad/cpu/row_split.h"
#include "raggrad/ops/sparse_segment/grad/sum_reproducible.h"
#include "raggrad/ops/sparse_segment/kernels.h"

namespace raggrad::sparse_segment::on_cpu {

// The rows of a gradient, for RunExactRows. A unit of work is a contribution.
template <class T, class C>
struct ReproducibleRows {
  using A = SumType<T>;
  const ReproducibleJob<T, C>& job;
  const ReproducibleFunctions<T, C>& run;

  int64_t row_at(int64_t contribution) const noexcept {
    const int64_t* const starts = job.sum.row_starts;
    return std::lower_bound(starts, starts + job.sum.num_unique, contribution) - starts;
  }
  cpu::Span terms(int64_t row) const noexcept { return {job.sum.row_starts[row], job.sum.row_starts[row + 1]}; }
  void Sum(int64_t row_begin, int64_t row_end) const noexcept { run.sum_rows(job, row_begin, row_end); }
  A Largest(cpu::Span contributions) const noexcept { return run.largest(job, contributions); }
  void SumPart(const SumGrid<A>& grid, cpu::Span contributions, cpu::Span columns, double* sums) const noexcept {
    run.sum_part(job, grid, contributions, columns, sums);
  }
  void Finish(int64_t row, const SumGrid<A>& grid, const double* sums) const noexcept {
    run.finish(job, row, grid, sums);
  }
};

// One pass over the gradient finds the largest magnitude of every row. It does not pay if most rows are used once, as
// in IndexedSlices: then the row loop looks for it while the row is in the cache.
template <class T, class C>
Status SumReproducibly(const GradProblem& p, const SumJob<T, C>& sum, const Context& ctx) noexcept {
  using A = SumType<T>;
  constexpr int64_t kUses = 2;  // of a gradient row, that pay for the pass
  const auto loops = ChooseLoops<C>(ctx, []<Isa I>() { return &ReproducibleLoopsFor<I>(); });
  if (!loops.ok()) return loops.status();
  const ReproducibleLoopsOf<T>& run = (*loops)->template of<T>();
  Executor& executor = ExecutorOf(ctx);
  const int64_t row_bytes = p.width * static_cast<int64_t>(sizeof(T));
  const bool ready = p.ids.n() >= kUses * p.ids.num_segments;
  auto rows = Scratch<SegmentRow<A>>::Make(ctx, ready ? p.ids.num_segments : 0);
  if (!rows.ok()) return rows.status();
  if (ready) {
    const cpu::Chunks chunks = cpu::SplitRows(executor, p.ids.num_segments, row_bytes);
    cpu::ForEachChunk(executor, chunks, [&](int64_t, int64_t begin, int64_t end) {
      run.describe(sum.grad + begin * p.width, end - begin, p.width,
                   sum.scales != nullptr ? sum.scales + begin : nullptr, rows->data() + begin);
    });
  }
  const ReproducibleJob<T, C> job = {sum, rows->data()};
  return cpu::RunExactRows<A>(ctx, cpu::SplitRows(executor, p.ids.n(), row_bytes), sum.num_unique, p.width,
                              ReproducibleRows<T, C>{job, run.template with<C>()},
                              /*in_place=*/sum.sink.optimizer != nullptr);
}

}  // namespace raggrad::sparse_segment::on_cpu
