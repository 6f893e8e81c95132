// Gradients and forwards of ids that have a plan: checks of shapes and types.
#include "raggrad/core/operands.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/plan/plan_state.h"
#include "raggrad/ops/sparse_segment/weights/weights.h"

namespace raggrad {
namespace sparse_segment {
namespace {

constexpr std::string_view GradName(SegmentCombiner combiner) noexcept {
  return ByCombiner(combiner, "SparseSegmentSumGrad with a plan", "SparseSegmentMeanGrad with a plan",
                    "SparseSegmentSqrtNGrad with a plan");
}

}  // namespace

Status CheckRowsOfPlan(std::string_view op, std::string_view name, const TensorView& view,
                       const SegmentPlan::State& plan, std::string_view what, int64_t expected) noexcept {
  if (Status s = CheckOperands(op, {{"plan", plan.indices_view()}, {name, view}}); !s.ok()) return s;
  if (view.rank() > 0 && view.dim(0) == expected) return {};
  return InvalidArgument(op, "the plan was made for another size [", name, ": expected ", expected,
                         " rows, the plan's ", what, ", got shape ", view.shape, "]");
}

Status CheckAscending(std::string_view op, const SegmentPlan::State& plan) noexcept {
  if (plan.ascending) return {};
  return InvalidArgument(op, "segment ids are not increasing [plan: expected one made from ascending segment_ids]");
}

Result<GradProblem> CheckWithPlan(std::string_view op, const SegmentPooling& pooling, const TensorView& grad,
                                  const SegmentPlan& plan) noexcept {
  if (Status s = CheckDType(op, "grad", grad.dtype, FloatTypes{}); !s.ok()) return s;
  const SegmentPlan::State& state = plan.state();
  if (Status s = CheckRowsOfPlan(op, "grad", grad, state, "segments", state.sizes.num_segments); !s.ok()) return s;
  const SegmentWeights* const weights = WeightsOf(pooling);
  if (Status s = CheckWeights(op, weights, state.num_ids, {"grad", grad}); !s.ok()) return s;
  if (weights != nullptr && !state.weighted) {
    return InvalidArgument(op, "the plan is for calls without weights [plan: expected one made with weighted = true]");
  }
  return GradProblem{
      .ids = {op, state.indices_view(), state.segment_ids_view(), state.sizes.table_rows, state.sizes.num_segments},
      .combiner = pooling.combiner,
      .grad = grad,
      .weights = weights,
      .plan = &state,
      .index_dtype = state.index_dtype};
}

ForwardProblem ForwardOf(std::string_view op, const SegmentPooling& pooling, const TensorView& data,
                         const SegmentPlan::State& plan) noexcept {
  return {.op = op,
          .combiner = pooling.combiner,
          .data = data,
          .indices = plan.indices_view(),
          .segment_ids = plan.segment_ids_view(),
          .num_segments = plan.sizes.num_segments,
          .ids_checked = true,
          .weights = WeightsOf(pooling),
          .starts = plan.starts.data()};
}

}  // namespace sparse_segment

Result<SparseSegmentGradV2Output> SparseSegmentGradV2(const SegmentPooling& pooling, const TensorView& grad,
                                                      const SegmentPlan& plan, const Context& ctx) noexcept {
  using namespace sparse_segment;
  const Result<GradProblem> problem = CheckWithPlan(GradName(pooling.combiner), pooling, grad, plan);
  if (!problem.ok()) return problem.status();
  if (!plan.state().waits) {
    return InvalidArgument(problem->ids.op,
                           "the number of rows is not known yet [plan: expected one of SegmentPlan::Make]");
  }
  return UsingPlan(problem->ids.op, plan, ctx, [&] { return GradV2(*problem, ctx); });
}

Result<Tensor> SparseSegmentGrad(const SegmentPooling& pooling, const TensorView& grad, const SegmentPlan& plan,
                                 const Context& ctx) noexcept {
  using namespace sparse_segment;
  const Result<GradProblem> problem = CheckWithPlan(GradName(pooling.combiner), pooling, grad, plan);
  if (!problem.ok()) return problem.status();
  return UsingPlan(problem->ids.op, plan, ctx, [&] { return Grad(*problem, ctx); });
}

Result<Tensor> SparseSegment(const SegmentPooling& pooling, const TensorView& data, const SegmentPlan& plan,
                             const Context& ctx) noexcept {
  using namespace sparse_segment;
  constexpr std::string_view op = "SparseSegment with a plan";
  if (Status s = CheckDataType(op, pooling.combiner, data.dtype); !s.ok()) return s;
  const SegmentPlan::State& state = plan.state();
  if (Status s = CheckRowsOfPlan(op, "data", data, state, "rows", state.sizes.table_rows); !s.ok()) return s;
  if (Status s = CheckAscending(op, state); !s.ok()) return s;
  if (Status s = CheckWeights(op, WeightsOf(pooling), state.num_ids, {"data", data}); !s.ok()) return s;
  const ForwardProblem problem = ForwardOf(op, pooling, data, state);
  return UsingPlan(op, plan, ctx, [&] { return Forward(problem, ctx); });
}

}  // namespace raggrad
