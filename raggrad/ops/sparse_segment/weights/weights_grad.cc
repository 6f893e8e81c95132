// Checks of the weights' gradient that need only shapes and types, and the choice of the backend.
#include "raggrad/core/operands.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/plan/plan_state.h"
#include "raggrad/ops/sparse_segment/weights/weights.h"

namespace raggrad {
namespace sparse_segment {
namespace {

constexpr std::string_view Name(SegmentCombiner combiner, bool with_plan) noexcept {
  if (with_plan) {
    return ByCombiner(combiner, "SparseSegmentSumWeightsGrad with a plan", "SparseSegmentMeanWeightsGrad with a plan",
                      "SparseSegmentSqrtNWeightsGrad with a plan");
  }
  return ByCombiner(combiner, "SparseSegmentSumWeightsGrad", "SparseSegmentMeanWeightsGrad",
                    "SparseSegmentSqrtNWeightsGrad");
}

// Checks that grad and data are rows of one width.
Status CheckRows(std::string_view op, const TensorView& grad, const TensorView& data,
                 const TensorView& indices) noexcept {
  if (Status s = CheckDType(op, "grad", grad.dtype, FloatTypes{}); !s.ok()) return s;
  if (data.dtype != grad.dtype) {
    return InvalidArgument(op, "data and grad have different types [data: expected ", grad.dtype, ", got ", data.dtype,
                           "]");
  }
  if (Status s = CheckOperands(op, {{"grad", grad}, {"data", data}, {"indices", indices}}); !s.ok()) return s;
  if (grad.rank() == 0) {
    return InvalidArgument(op, "grad must have rows [grad: expected at least rank 1, got a scalar]");
  }
  if (data.rank() > 0 && std::ranges::equal(data.shape.tail(), grad.shape.tail())) return {};
  return InvalidArgument(op,
                         "rows of data and grad have different shapes [data: expected the inner dimensions of grad, ",
                         grad.shape, ", got shape ", data.shape, "]");
}

Status CheckGiven(std::string_view op, const SegmentWeights* weights) noexcept {
  if (weights != nullptr) return {};
  return InvalidArgument(op, "there are no weights [pooling.weights: expected a vector, got none]");
}

Status CheckCount(std::string_view op, const TensorView& grad) noexcept {
  if (grad.dim(0) <= INT32_MAX) return {};
  return InvalidArgument(op, "there are too many segments [grad: expected at most ", INT32_MAX, " rows, got ",
                         grad.dim(0), "]");
}

}  // namespace

Result<Tensor> WeightsGrad(const WeightsGradProblem& problem, const Context& ctx) noexcept {
  const std::string_view op = problem.forward.op;
  return cuda::RunOnDevice<on_cuda::Kernels>(
      op, problem.grad.device, [&] { return on_cpu::WeightsGrad(problem, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.weights_grad(problem, ctx); });
}

}  // namespace sparse_segment

Result<Tensor> SparseSegmentWeightsGrad(const SegmentPooling& pooling, const TensorView& grad, const TensorView& data,
                                        const TensorView& indices, const TensorView& segment_ids,
                                        const Context& ctx) noexcept {
  using namespace sparse_segment;
  const std::string_view op = Name(pooling.combiner, /*with_plan=*/false);
  const SegmentWeights* const weights = WeightsOf(pooling);
  if (Status s = CheckIdOperands(op, indices, segment_ids); !s.ok()) return s;
  if (Status s = CheckRows(op, grad, data, indices); !s.ok()) return s;
  if (Status s = CheckGiven(op, weights); !s.ok()) return s;
  if (Status s = CheckWeights(op, weights, indices.dim(0), {"data", data}); !s.ok()) return s;
  if (Status s = CheckCount(op, grad); !s.ok()) return s;
  return WeightsGrad({{.op = op,
                       .combiner = pooling.combiner,
                       .data = data,
                       .indices = indices,
                       .segment_ids = segment_ids,
                       .num_segments = grad.dim(0),
                       .weights = weights},
                      grad},
                     ctx);
}

Result<Tensor> SparseSegmentWeightsGrad(const SegmentPooling& pooling, const TensorView& grad, const TensorView& data,
                                        const SegmentPlan& plan, const Context& ctx) noexcept {
  using namespace sparse_segment;
  const std::string_view op = Name(pooling.combiner, /*with_plan=*/true);
  const SegmentWeights* const weights = WeightsOf(pooling);
  const SegmentPlan::State& state = plan.state();
  if (Status s = CheckRows(op, grad, data, state.indices_view()); !s.ok()) return s;
  if (Status s = CheckRowsOfPlan(op, "grad", grad, state, "segments", state.sizes.num_segments); !s.ok()) return s;
  if (Status s = CheckRowsOfPlan(op, "data", data, state, "rows", state.sizes.table_rows); !s.ok()) return s;
  if (Status s = CheckAscending(op, state); !s.ok()) return s;
  if (Status s = CheckGiven(op, weights); !s.ok()) return s;
  if (Status s = CheckWeights(op, weights, state.num_ids, {"data", data}); !s.ok()) return s;
  const WeightsGradProblem problem = {ForwardOf(op, pooling, data, state), grad};
  return UsingPlan(op, plan, ctx, [&] { return WeightsGrad(problem, ctx); });
}

}  // namespace raggrad
