// CPU backend of the gradients: plan, outputs, split of the row loop over workers.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "raggrad/core/error_text.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/isa_choice.h"
#include "raggrad/cpu/padding.h"
#include "raggrad/cpu/row_split.h"
#include "raggrad/ops/sparse_segment/grad/reproducible_cpu.h"
#include "raggrad/ops/sparse_segment/grad/sum_rows.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/plan/plan_state.h"
#include "raggrad/ops/sparse_segment/update/optimizer_job.h"
#include "raggrad/ops/sparse_segment/update/rowwise_adagrad.h"
#include "raggrad/ops/sparse_segment/weights/weight_factors.h"

namespace raggrad::sparse_segment::on_cpu {
namespace {

using cpu::Chunks;
using cpu::ForEachChunk;
using cpu::ForEachChunkUntilStopped;
using cpu::RunRows;
using cpu::SplitEvenly;
using cpu::SplitRows;

// The plan that came with the problem, or one made now, and the factors of its contributions if there are weights.
template <class A, class C>
class PlanOf {
 public:
  static Result<PlanOf> Make(const GradProblem& p, const Context& ctx) noexcept {
    if (Status s = CheckWeightedIds(p.ids.op, p.weights, p.ids.n()); !s.ok()) return s;
    PlanOf plan;
    if constexpr (std::is_same_v<C, Contribution>) {
      if (p.plan != nullptr) plan.ready_ = &p.plan->sorted;
    }
    if (plan.ready_ != nullptr) {
      if (!p.is_weighted()) return plan;
      Result<Scratch<A>> factors = FactorsOf<A>(p, *plan.ready_, ctx);
      if (!factors.ok()) return factors.status();
      plan.factors_ = *std::move(factors);
      return plan;
    }
    const auto make = [&](const int64_t* counts) { return MakeFactors<A>(p, counts, ctx); };
    Carried<A> factors = {make, {}};
    Result<Plan<C>> made =
        MakePlan<C>(p.ids, {.counts = p.divides_by_count()}, ctx, p.is_weighted() ? &factors : nullptr);
    if (!made.ok()) return made.status();
    plan.own_ = *std::move(made);
    plan.factors_ = std::move(factors.sorted);
    return plan;
  }
  const Plan<C>& operator*() const noexcept { return ready_ != nullptr ? *ready_ : own_; }
  const A* factors() const noexcept { return factors_.data(); }  // null without weights

 private:
  const Plan<C>* ready_ = nullptr;
  Plan<C> own_;
  Scratch<A> factors_;
};

// The scales of all segments; empty for Sum.
template <class A>
Result<Scratch<A>> MakeScales(const GradProblem& p, const Scratch<int64_t>& counts, const Context& ctx) noexcept {
  if (!p.is_scaled()) return Scratch<A>();
  Result<Scratch<A>> scales = Scratch<A>::Make(ctx, p.ids.num_segments);
  if (!scales.ok()) return scales;
  Executor& executor = ExecutorOf(ctx);
  ForEachChunk(executor, SplitEvenly(executor, p.ids.num_segments, 1 << 14), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      (*scales)[s] = ScaleOf<A>(p.combiner, std::max<int64_t>(counts[s], 1));
    }
  });
  return scales;
}

// Sums all rows of the plan into the sink. A unit of work is a contribution.
template <class T, class C>
Status SumRows(const GradProblem& p, const PlanOf<SumType<T>, C>& planned, const Context& ctx,
               const RowSink<T>& sink) noexcept {
  const Plan<C>& plan = *planned;
  const auto loops = ChooseLoops<C>(ctx, []<Isa I>() { return &SumLoopsFor<I>(); });
  if (!loops.ok()) return loops.status();
  using A = SumType<T>;
  const A* contribution_scales = planned.factors();
  if constexpr (std::is_same_v<A, float>) {
    if (p.combiner == SegmentCombiner::kMean && !p.is_weighted()) contribution_scales = plan.mean_scales.data();
  }
  const Result<Scratch<A>> scales = contribution_scales != nullptr ? Scratch<A>() : MakeScales<A>(p, plan.counts, ctx);
  if (!scales.ok()) return scales.status();
  if (p.width == 0 || plan.num_unique == 0) return {};
  const SumJob<T, C> job = {
      .grad = p.grad.As<T>(),
      .width = p.width,
      .contributions = plan.contributions.data(),
      .num_contributions = p.ids.n(),
      .row_starts = plan.row_starts.data(),
      .num_unique = plan.num_unique,
      .scales = scales->data(),
      .contribution_scales = contribution_scales,
      .accumulation = ctx.accumulation.value_or(Accumulation::kSequential),
      .sink = sink,
  };
  if (job.accumulation == Accumulation::kReproducible) return SumReproducibly(p, job, ctx);
  const int64_t row_bytes = p.width * static_cast<int64_t>(sizeof(T));
  const auto row_at = [&](int64_t contribution) {
    return std::lower_bound(job.row_starts, job.row_starts + plan.num_unique, contribution) - job.row_starts;
  };
  const auto length = [&](int64_t row) { return job.row_starts[row + 1] - job.row_starts[row]; };
  const SumRowsFunction<T, C> sum_rows = (*loops)->template of<T>().template sum<C>();
  Executor& executor = ExecutorOf(ctx);
  return RunRows(
      executor, SplitRows(executor, p.ids.n(), row_bytes), plan.num_unique, p.width, row_at, length,
      [&](int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
        sum_rows(job, row_begin, row_end, column_begin, column_end);
      },
      /*in_place=*/sink.optimizer != nullptr);
}

template <class Idx, class C>
void WriteUniqueRows(Executor& executor, const Plan<C>& plan, Idx* out) noexcept {
  ForEachChunk(executor, SplitEvenly(executor, plan.num_unique, 1 << 14), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) out[u] = static_cast<Idx>(plan.table_row(u));
  });
}

// The outputs of GradV2, with room for more rows than there are if the caller has asked for that.
struct UniqueRows {
  SparseSegmentGradV2Output tensors;
  int64_t num_unique = 0;
};

Result<UniqueRows> AllocateRows(const GradProblem& p, int64_t rows, const Context& ctx) noexcept {
  Result<Tensor> output = AllocateOutput(ctx, 0, p.grad.dtype, Shape::WithDim0(rows, p.grad.shape.tail()));
  if (!output.ok()) return output.status();
  Result<Tensor> unique = AllocateOutput(ctx, 1, p.index_dtype, Shape{rows});
  if (!unique.ok()) return unique.status();
  return UniqueRows{{*std::move(output), *std::move(unique)}};
}

template <class T, class C>
Result<UniqueRows> MakeRows(const GradProblem& p, std::optional<int64_t> max_unique, const Context& ctx) noexcept {
  const Result<PlanOf<SumType<T>, C>> planned = PlanOf<SumType<T>, C>::Make(p, ctx);
  if (!planned.ok()) return planned.status();
  const Plan<C>& plan = **planned;
  const int64_t room = max_unique.value_or(plan.num_unique);
  if (plan.num_unique > room) return TooMany(p.ids.op, "rows", "max_unique", room, plan.num_unique);
  Result<UniqueRows> rows = AllocateRows(p, room, ctx);
  if (!rows.ok()) return rows;
  rows->num_unique = plan.num_unique;
  const Status written = Visit(IndexTypes{}, p.index_dtype, [&]<class Idx>() -> Status {
    WriteUniqueRows(ExecutorOf(ctx), plan, rows->tensors.sorted_unique_indices.As<Idx>());
    return {};
  });
  if (!written.ok()) return written;
  if (Status s = SumRows<T>(p, *planned, ctx, {.output = rows->tensors.output.As<T>()}); !s.ok()) return s;
  return rows;
}

// Zeroes the rows of the dense output that no index names; the row loop writes the others.
template <class T, class C>
Status ZeroOtherRows(Executor& executor, const GradProblem& p, const Plan<C>& plan, T* output) noexcept {
  const int64_t row_bytes = p.width * static_cast<int64_t>(sizeof(T));
  if (row_bytes == 0) return {};
  const Chunks chunks = SplitRows(executor, p.ids.table_rows, row_bytes);
  return ForEachChunkUntilStopped(executor, chunks, [&](int64_t, int64_t begin, int64_t end) {
    int64_t u = 0;  // the first unique row at or after `begin`
    for (int64_t upper = plan.num_unique; u < upper;) {
      const int64_t middle = u + (upper - u) / 2;
      if (plan.table_row(middle) < begin) {
        u = middle + 1;
      } else {
        upper = middle;
      }
    }
    for (int64_t row = begin; row < end; ++u) {
      const int64_t next = u < plan.num_unique ? std::min(plan.table_row(u), end) : end;
      std::memset(static_cast<void*>(output + row * p.width), 0, static_cast<size_t>((next - row) * row_bytes));
      row = next + 1;
    }
  });
}

template <class T, class C>
Result<Tensor> Grad(const GradProblem& p, const Context& ctx) noexcept {
  // The output comes before the checks of the ids: TensorFlow reports too large an output before a bad id.
  Result<Tensor> output = AllocateOutput(ctx, 0, p.grad.dtype, Shape::WithDim0(p.ids.table_rows, p.grad.shape.tail()));
  if (!output.ok()) return output.status();
  if (p.ids.n() == 0 || p.ids.table_rows == 0) {
    if (Status s = ZeroOtherRows(ExecutorOf(ctx), p, Plan<C>(), output->As<T>()); !s.ok()) return s;
    return output;
  }
  const Result<PlanOf<SumType<T>, C>> plan = PlanOf<SumType<T>, C>::Make(p, ctx);
  if (!plan.ok()) return plan.status();
  if (Status s = SumRows<T>(p, *plan, ctx, {.output = output->As<T>(), .dense = true}); !s.ok()) return s;
  if (Status s = ZeroOtherRows(ExecutorOf(ctx), p, **plan, output->As<T>()); !s.ok()) return s;
  return output;
}

template <class T, class C>
Status GradApply(const GradProblem& p, const UpdateProblem& update, const Context& ctx) noexcept {
  const auto optimizer = MakeOptimizerJob<SumType<T>>(update, p.width, ctx);
  if (!optimizer.ok()) return optimizer.status();
  const Result<PlanOf<SumType<T>, C>> plan = PlanOf<SumType<T>, C>::Make(p, ctx);
  if (!plan.ok()) return plan.status();
  return SumRows<T>(p, *plan, ctx, {.optimizer = &*optimizer});
}

// Calls f<T, C>() with the problem's value type and the smallest contribution that can name its segments.
template <class F>
auto VisitTypes(const GradProblem& p, const F& f) noexcept {
  return Visit(FloatTypes{}, p.grad.dtype, [&]<class T>() {
    if (p.ids.num_segments <= int64_t{UINT32_MAX}) return f.template operator()<T, Contribution>();
    return f.template operator()<T, WideContribution>();
  });
}

// max_unique unset: room for exactly as many rows as there are.
Result<UniqueRows> MakeRows(const GradProblem& p, std::optional<int64_t> max_unique, const Context& ctx) noexcept {
  if (p.ids.n() == 0 || p.ids.table_rows == 0) return AllocateRows(p, max_unique.value_or(0), ctx);
  return VisitTypes(p, [&]<class T, class C>() { return MakeRows<T, C>(p, max_unique, ctx); });
}

}  // namespace

Result<SparseSegmentGradV2Output> GradV2(const GradProblem& problem, const Context& ctx) noexcept {
  Result<UniqueRows> rows = MakeRows(problem, /*max_unique=*/{}, ctx);
  if (!rows.ok()) return rows.status();
  return std::move(rows->tensors);
}

Result<SparseSegmentGradV2PaddedOutput> GradV2Padded(const GradProblem& problem, PaddedForm form, int64_t max_unique,
                                                     const Context& ctx) noexcept {
  Result<UniqueRows> rows = MakeRows(problem, max_unique, ctx);
  if (!rows.ok()) return rows.status();
  Tensor& output = rows->tensors.output;
  Tensor& unique = rows->tensors.sorted_unique_indices;
  cpu::ZeroRowsFrom(rows->num_unique, output, ctx);
  const Status padded = Visit(IndexTypes{}, problem.index_dtype, [&]<class Idx>() -> Status {
    cpu::PadIndicesFrom(rows->num_unique, unique, static_cast<Idx>(problem.ids.table_rows), ctx);
    return {};
  });
  if (!padded.ok()) return padded;
  Result<Tensor> report = cpu::MakeReport(ctx, 2, form, rows->num_unique, max_unique);
  if (!report.ok()) return report.status();
  return SparseSegmentGradV2PaddedOutput{std::move(output), std::move(unique), *std::move(report)};
}

Result<Tensor> Grad(const GradProblem& problem, const Context& ctx) noexcept {
  return VisitTypes(problem, [&]<class T, class C>() { return Grad<T, C>(problem, ctx); });
}

Status GradApply(const GradProblem& problem, const UpdateProblem& update, const Context& ctx) noexcept {
  if (problem.ids.n() == 0 || problem.ids.table_rows == 0 || problem.width == 0) return {};
  if (std::holds_alternative<RowwiseAdagrad>(update.update)) {
    const Result<UniqueRows> rows = MakeRows(problem, /*max_unique=*/{}, ctx);
    if (!rows.ok()) return rows.status();
    return ApplyRowwiseAdagrad(rows->tensors, update, problem.width, ctx);
  }
  return VisitTypes(problem, [&]<class T, class C>() { return GradApply<T, C>(problem, update, ctx); });
}

}  // namespace raggrad::sparse_segment::on_cpu
