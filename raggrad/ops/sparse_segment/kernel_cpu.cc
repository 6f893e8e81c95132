// Host side of the CPU backend: plan, outputs, split of the row loop over workers.
#include <algorithm>
#include <cstring>

#include "raggrad/core/error_text.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/ops/sparse_segment/isa_choice.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/plan.h"
#include "raggrad/ops/sparse_segment/row_loop.h"
#include "raggrad/ops/sparse_segment/row_split.h"

namespace raggrad::sparse_segment::cpu {
namespace {

using ::raggrad::cpu::ForEachChunk;
using ::raggrad::cpu::SplitEvenly;

template <class T, class C>
Result<SumRowsFunction<T, C>> ChooseSumRows(const Context& ctx) noexcept {
  return ChooseByIsa<SumRowsFunction<T, C>>(ctx, []<Isa I>() { return &SumRows<I, T, C>; });
}

// A unit of work is a contribution.
template <class T, class C>
void RunJob(Parallel& parallel, const RowJob<T, C>& job, int64_t rows, SumRowsFunction<T, C> sum_rows) noexcept {
  if (job.width == 0) return;
  const int64_t row_bytes = job.width * static_cast<int64_t>(sizeof(T));
  const auto row_at = [&](int64_t contribution) {
    return std::lower_bound(job.row_starts, job.row_starts + rows, contribution) - job.row_starts;
  };
  const auto length = [&](int64_t row) { return job.row_starts[row + 1] - job.row_starts[row]; };
  RunRows(parallel, SplitRows(parallel, job.num_contributions, row_bytes), rows, job.width, row_at, length,
          [&](int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
            sum_rows(job, row_begin, row_end, column_begin, column_end);
          });
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
  ForEachChunk(parallel, SplitRows(parallel, p.dim0, row_bytes), [&](int64_t, int64_t begin, int64_t end) {
    int64_t u = 0;  // the first unique row at or after `begin`
    for (int64_t upper = plan.rows; u < upper;) {
      const int64_t middle = u + (upper - u) / 2;
      if (row_number(middle) < begin) {
        u = middle + 1;
      } else {
        upper = middle;
      }
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
