// Host side of the CPU backend: plan, outputs, split of the row loop over workers.
#include <algorithm>
#include <cstring>
#include <optional>

#include "raggrad/core/error_text.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/ops/sparse_segment/isa_choice.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/plan.h"
#include "raggrad/ops/sparse_segment/row_loop.h"
#include "raggrad/ops/sparse_segment/row_split.h"
#include "raggrad/ops/sparse_segment/update_job.h"

namespace raggrad::sparse_segment::cpu {
namespace {

using ::raggrad::cpu::Chunks;
using ::raggrad::cpu::ForEachChunk;
using ::raggrad::cpu::ForEachChunkUntilStopped;
using ::raggrad::cpu::SplitEvenly;

// The problem's plan, or one that is made now.
template <class C>
class PlanOf {
 public:
  static Result<PlanOf> Make(const Problem& p, const Context& ctx) noexcept {
    PlanOf plan;
    if constexpr (std::is_same_v<C, Contribution>) plan.ready_ = p.plan;
    if (plan.ready_ == nullptr) {
      Result<Plan<C>> made = MakePlan<C>(p, p.combiner != SegmentCombiner::kSum && p.width > 0, ctx);
      if (!made.ok()) return made.status();
      plan.own_ = *std::move(made);
    }
    return plan;
  }
  const Plan<C>& operator*() const noexcept { return ready_ != nullptr ? *ready_ : own_; }
  const Plan<C>* operator->() const noexcept { return &**this; }

 private:
  const Plan<C>* ready_ = nullptr;
  Plan<C> own_;
};

// ScaleOf all segments. Empty for Sum.
template <class A>
Result<Scratch<A>> MakeScales(const Problem& p, const Scratch<int64_t>& counts, const Context& ctx) noexcept {
  if (p.combiner == SegmentCombiner::kSum || p.width == 0) return Scratch<A>();
  Result<Scratch<A>> scales = Scratch<A>::Make(ctx, p.segments());
  if (!scales.ok()) return scales;
  Parallel& parallel = ctx.executor();
  ForEachChunk(parallel, SplitEvenly(parallel, p.segments(), 1 << 14), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      (*scales)[s] = ScaleOf<A>(p.combiner, std::max<int64_t>(counts[s], 1));
    }
  });
  return scales;
}

// Sums all rows into `output`, or hands them to `update`. A unit of work is a contribution.
template <class T, class C>
Status RunRowLoop(const Problem& p, const Plan<C>& plan, const Context& ctx, T* output, bool dense,
                  const UpdateJob<SumType<T>>* update = nullptr) noexcept {
  const Result<SumRowsFunction<T, C>> sum_rows =
      ChooseByIsa<SumRowsFunction<T, C>>(ctx, []<Isa I>() { return &SumRows<I, T, C>; });
  if (!sum_rows.ok()) return sum_rows.status();
  using A = SumType<T>;
  const A* contribution_scales = nullptr;
  if constexpr (std::is_same_v<A, float>) {
    if (p.combiner == SegmentCombiner::kMean) contribution_scales = plan.mean_scales.data();
  }
  const Result<Scratch<A>> scales = contribution_scales != nullptr ? Scratch<A>() : MakeScales<A>(p, plan.counts, ctx);
  if (!scales.ok()) return scales.status();
  if (p.width == 0 || plan.rows == 0) return {};
  const RowJob<T, C> job = {
      .grad = p.grad.As<T>(),
      .width = p.width,
      .contributions = plan.contributions.data(),
      .num_contributions = p.n(),
      .row_starts = plan.row_starts.data(),
      .num_rows = plan.rows,
      .scales = scales->data(),
      .contribution_scales = contribution_scales,
      .pairwise = ctx.accumulation.value_or(Accumulation::kSequential) == Accumulation::kFast,
      .output = output,
      .dense = dense,
      .update = update,
  };
  const int64_t row_bytes = p.width * static_cast<int64_t>(sizeof(T));
  const auto row_at = [&](int64_t contribution) {
    return std::lower_bound(job.row_starts, job.row_starts + plan.rows, contribution) - job.row_starts;
  };
  const auto length = [&](int64_t row) { return job.row_starts[row + 1] - job.row_starts[row]; };
  Parallel& parallel = ctx.executor();
  return RunRows(
      parallel, SplitRows(parallel, p.n(), row_bytes), plan.rows, p.width, row_at, length,
      [&](int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
        (*sum_rows)(job, row_begin, row_end, column_begin, column_end);
      },
      /*in_place=*/update != nullptr);
}

template <class Idx, class C>
void WriteRowNumbers(Parallel& parallel, const Plan<C>& plan, Idx* out) noexcept {
  ForEachChunk(parallel, SplitEvenly(parallel, plan.rows, 1 << 14), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) out[u] = static_cast<Idx>(plan.contributions[plan.row_starts[u]].row);
  });
}

template <class T, class C>
Result<SparseSegmentGradV2Output> GradV2(const Problem& p, const Context& ctx) noexcept {
  const Result<PlanOf<C>> planned = PlanOf<C>::Make(p, ctx);
  if (!planned.ok()) return planned.status();
  const Plan<C>& plan = **planned;
  Result<Tensor> output = AllocateOutput(ctx, 0, p.grad.dtype, Shape::WithDim0(plan.rows, p.grad.shape.tail()));
  if (!output.ok()) return output.status();
  Result<Tensor> unique = AllocateOutput(ctx, 1, p.index_dtype, Shape{plan.rows});
  if (!unique.ok()) return unique.status();
  const Status numbered = Visit(IndexTypes{}, p.index_dtype, [&]<class Idx>() -> Status {
    WriteRowNumbers(ctx.executor(), plan, unique->As<Idx>());
    return {};
  });
  if (!numbered.ok()) return numbered;
  if (Status s = RunRowLoop(p, plan, ctx, output->As<T>(), /*dense=*/false); !s.ok()) return s;
  return SparseSegmentGradV2Output{*std::move(output), *std::move(unique)};
}

// Zeroes the rows of the dense output that no index names; the row loop writes the others.
template <class T, class C>
Status ZeroOtherRows(Parallel& parallel, const Problem& p, const Plan<C>& plan, T* output) noexcept {
  const auto row_number = [&](int64_t u) { return static_cast<int64_t>(plan.contributions[plan.row_starts[u]].row); };
  const int64_t row_bytes = p.width * static_cast<int64_t>(sizeof(T));
  if (row_bytes == 0) return {};
  const Chunks chunks = SplitRows(parallel, p.dim0, row_bytes);
  return ForEachChunkUntilStopped(parallel, chunks, [&](int64_t, int64_t begin, int64_t end) {
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
  // Before the ids are looked at, as in TensorFlow: too large an output is reported before a bad id.
  Result<Tensor> output = AllocateOutput(ctx, 0, p.grad.dtype, Shape::WithDim0(p.dim0, p.grad.shape.tail()));
  if (!output.ok()) return output.status();
  if (p.n() == 0 || p.dim0 == 0) {
    if (Status s = ZeroOtherRows(ctx.executor(), p, Plan<C>(), output->As<T>()); !s.ok()) return s;
    return output;
  }
  const Result<PlanOf<C>> plan = PlanOf<C>::Make(p, ctx);
  if (!plan.ok()) return plan.status();
  if (Status s = RunRowLoop(p, **plan, ctx, output->As<T>(), /*dense=*/true); !s.ok()) return s;
  if (Status s = ZeroOtherRows(ctx.executor(), p, **plan, output->As<T>()); !s.ok()) return s;
  return output;
}

template <class T, class C>
Status GradApply(const Problem& p, const UpdateProblem& update, const Context& ctx) noexcept {
  const Result<UpdateJob<SumType<T>>> job = MakeUpdateJob<SumType<T>>(update, p.width, ctx);
  if (!job.ok()) return job.status();
  const Result<PlanOf<C>> plan = PlanOf<C>::Make(p, ctx);
  if (!plan.ok()) return plan.status();
  return RunRowLoop<T>(p, **plan, ctx, nullptr, /*dense=*/false, &*job);
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
    Result<Tensor> unique = AllocateOutput(ctx, 1, problem.index_dtype, Shape{0});
    if (!unique.ok()) return unique.status();
    return SparseSegmentGradV2Output{*std::move(output), *std::move(unique)};
  }
  return VisitTypes(problem, [&]<class T, class C>() { return GradV2<T, C>(problem, ctx); });
}

Result<Tensor> Grad(const Problem& problem, const Context& ctx) noexcept {
  return VisitTypes(problem, [&]<class T, class C>() { return Grad<T, C>(problem, ctx); });
}

Status GradApply(const Problem& problem, const UpdateProblem& update, const Context& ctx) noexcept {
  if (problem.n() == 0 || problem.dim0 == 0 || problem.width == 0) return {};
  return VisitTypes(problem, [&]<class T, class C>() { return GradApply<T, C>(problem, update, ctx); });
}

}  // namespace raggrad::sparse_segment::cpu
