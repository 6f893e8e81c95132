// Host side of the CPU backend: plan, outputs, split of the row loop over workers.
#include <algorithm>
#include <cstring>

#include "raggrad/core/error_text.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/plan.h"
#include "raggrad/ops/sparse_segment/row_loop.h"

namespace raggrad::sparse_segment::cpu {
namespace {

using ::raggrad::cpu::Chunks;
using ::raggrad::cpu::ForEachChunk;
using ::raggrad::cpu::SplitEvenly;

constexpr int64_t kGrainBytes = 1 << 17;  // of gradient rows read, or output zeroed, per chunk at least
constexpr int64_t kChunksPerWorker = 4;
constexpr int64_t kColumnGrain = 16;  // a hot row is cut into strips of at least one cache line of float32

template <class T, class C>
Result<SumRowsFunction<T, C>> ChooseSumRows(const Context& ctx) noexcept {
  const Result<Isa> isa = ChooseIsa(ctx.isa);
  if (!isa.ok()) return isa.status();
#if defined(__x86_64__)
  if (*isa == Isa::kX86V4) return &SumRows<Isa::kX86V4, T, C>;
  if (*isa == Isa::kX86V3) return &SumRows<Isa::kX86V3, T, C>;
  return &SumRows<Isa::kX86V1, T, C>;
#else
  return &SumRows<Isa::kArmV8, T, C>;
#endif
}

// Runs the job: every row is summed by one worker, so its order does not depend on their number. The cut is by
// contributions, not by rows. A row with so many that it would keep one worker busy alone is cut by columns.
template <class T, class C>
void RunJob(Parallel& parallel, const RowJob<T, C>& job, int64_t rows, SumRowsFunction<T, C> sum_rows) noexcept {
  if (job.width == 0) return;
  const int64_t n = job.num_contributions;
  const int64_t row_bytes = job.width * static_cast<int64_t>(sizeof(T));
  const Chunks chunks = SplitEvenly(parallel, n, std::max<int64_t>(kGrainBytes / row_bytes, 1), kChunksPerWorker);
  if (chunks.count == 1) {
    sum_rows(job, 0, rows, 0, job.width);
    return;
  }
  const int64_t strips = std::clamp<int64_t>(job.width / kColumnGrain, 1, parallel.num_workers());
  const int64_t hot_length = n / chunks.count;
  const auto row_at = [&](int64_t contribution) {  // the first row that starts there or later
    return std::lower_bound(job.row_starts, job.row_starts + rows, contribution) - job.row_starts;
  };
  const auto is_hot = [&](int64_t row) {
    return strips > 1 && job.row_starts[row + 1] - job.row_starts[row] > hot_length;
  };
  // Strip s of every hot row, and the other rows of chunk c, are tasks. A hot row spans more than a chunk's length, so
  // it is the last to start in its chunk: looking at one row per chunk finds them all.
  const auto last_row = [&](int64_t chunk) { return row_at(chunks.end(chunk)) - 1; };
  const Chunks columns = {job.width, strips};
  const auto task = [&](int64_t t) {
    const int64_t chunk = t / (strips + 1);
    const int64_t strip = t % (strips + 1) - 1;
    const int64_t begin = row_at(chunks.begin(chunk));
    const int64_t end = last_row(chunk) + 1;
    if (begin == end) return;  // a long row covers the chunk
    const bool hot_end = is_hot(end - 1);
    if (strip < 0) {
      sum_rows(job, begin, hot_end ? end - 1 : end, 0, job.width);
    } else if (hot_end) {
      sum_rows(job, end - 1, end, columns.begin(strip), columns.end(strip));
    }
  };
  parallel.Run(chunks.count * (strips + 1), task);
}

Accumulation AccumulationOf(const Context& ctx) noexcept {
  return ctx.accumulation.value_or(Accumulation::kSequential);
}

template <class T, class C>
RowJob<T, C> MakeJob(const Problem& p, const Plan<C>& plan, const Context& ctx, Tensor& output, bool dense) noexcept {
  return {p.grad.As<T>(),
          p.width,
          plan.contributions.data(),
          p.n(),
          plan.row_starts.data(),
          plan.scales.data(),
          output.As<T>(),
          dense,
          AccumulationOf(ctx) == Accumulation::kFast};
}

template <class T, class C>
Result<SparseSegmentGradV2Output> GradV2(const Problem& p, const Context& ctx) noexcept {
  const Result<SumRowsFunction<T, C>> sum_rows = ChooseSumRows<T, C>(ctx);
  if (!sum_rows.ok()) return sum_rows.status();
  const Result<Plan<C>> plan = MakePlan<C>(p, ctx);
  if (!plan.ok()) return plan.status();
  Result<Tensor> output = AllocateOutput(ctx, 0, p.grad.dtype, Shape::WithDim0(plan->rows, p.grad.shape.tail()));
  if (!output.ok()) return output.status();
  Result<Tensor> unique = AllocateOutput(ctx, 1, p.indices.dtype, Shape{plan->rows});
  if (!unique.ok()) return unique.status();

  Parallel& parallel = ctx.executor();
  const Status numbered = Visit(IndexTypes{}, p.indices.dtype, [&]<class Idx>() -> Status {
    Idx* out = unique->As<Idx>();
    ForEachChunk(parallel, SplitEvenly(parallel, plan->rows, 1 << 14), [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) out[u] = static_cast<Idx>(plan->contributions[plan->row_starts[u]].row);
    });
    return {};
  });
  if (!numbered.ok()) return numbered;
  RunJob(parallel, MakeJob<T>(p, *plan, ctx, *output, /*dense=*/false), plan->rows, *sum_rows);
  return SparseSegmentGradV2Output{*std::move(output), *std::move(unique)};
}

// Zeroes the rows of the dense output that no index names; the row loop writes the others.
template <class T, class C>
void ZeroOtherRows(Parallel& parallel, const Problem& p, const Plan<C>& plan, T* output) noexcept {
  const auto row_number = [&](int64_t u) { return static_cast<int64_t>(plan.contributions[plan.row_starts[u]].row); };
  const int64_t row_bytes = p.width * static_cast<int64_t>(sizeof(T));
  if (row_bytes == 0) return;
  const Chunks chunks = SplitEvenly(parallel, p.dim0, std::max<int64_t>(kGrainBytes / row_bytes, 1), kChunksPerWorker);
  ForEachChunk(parallel, chunks, [&](int64_t, int64_t begin, int64_t end) {
    int64_t u = 0;  // the first unique row at or after `begin`
    for (int64_t upper = plan.rows; u < upper;) {
      const int64_t middle = u + (upper - u) / 2;
      if (row_number(middle) < begin)
        u = middle + 1;
      else
        upper = middle;
    }
    for (int64_t row = begin; row < end; ++u) {
      const int64_t next = u < plan.rows ? std::min(row_number(u), end) : end;
      std::memset(static_cast<void*>(output + row * p.width), 0, static_cast<size_t>((next - row) * row_bytes));
      row = next + 1;
    }
  });
}

template <class T, class C>
Result<Tensor> Grad(const Problem& p, const Context& ctx) noexcept {
  const Result<SumRowsFunction<T, C>> sum_rows = ChooseSumRows<T, C>(ctx);
  if (!sum_rows.ok()) return sum_rows.status();
  // Before the ids are looked at, as in TensorFlow: too large an output is reported before a bad id.
  Result<Tensor> output = AllocateOutput(ctx, 0, p.grad.dtype, Shape::WithDim0(p.dim0, p.grad.shape.tail()));
  if (!output.ok()) return output.status();
  Plan<C> plan;
  if (p.n() > 0 && p.dim0 > 0) {
    Result<Plan<C>> made = MakePlan<C>(p, ctx);
    if (!made.ok()) return made.status();
    plan = *std::move(made);
  }
  Parallel& parallel = ctx.executor();
  ZeroOtherRows(parallel, p, plan, output->As<T>());
  if (plan.rows > 0) RunJob(parallel, MakeJob<T>(p, plan, ctx, *output, /*dense=*/true), plan.rows, *sum_rows);
  return output;
}

// f<T, C>() for the problem's value type and the smallest contribution that can name its segments.
template <class F>
auto VisitTypes(const Problem& p, const F& f) noexcept {
  return Visit(FloatTypes{}, p.grad.dtype, [&]<class T>() {
    if (p.segments() <= int64_t{UINT32_MAX}) return f.template operator()<T, Contribution>();
    return f.template operator()<T, WideContribution>();
  });
}

}  // namespace

Result<SparseSegmentGradV2Output> GradV2(const Problem& problem, const Context& ctx) noexcept {
  if (problem.n() == 0 || problem.dim0 == 0) {
    Result<Tensor> output = AllocateOutput(ctx, 0, problem.grad.dtype, Shape::WithDim0(0, problem.grad.shape.tail()));
    if (!output.ok()) return output.status();
    Result<Tensor> unique = AllocateOutput(ctx, 1, problem.indices.dtype, Shape{0});
    if (!unique.ok()) return unique.status();
    return SparseSegmentGradV2Output{*std::move(output), *std::move(unique)};
  }
  return VisitTypes(problem, [&]<class T, class C>() { return GradV2<T, C>(problem, ctx); });
}

Result<Tensor> Grad(const Problem& problem, const Context& ctx) noexcept {
  return VisitTypes(problem, [&]<class T, class C>() { return Grad<T, C>(problem, ctx); });
}

}  // namespace raggrad::sparse_segment::cpu
