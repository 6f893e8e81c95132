// Checks of the gradients that need only shapes and types (and dim0, which is always in host memory), and the choice of
// the backend.
#include "raggrad/core/error_text.h"
#include "raggrad/core/operands.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/segment_order.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"
#include "raggrad/ops/sparse_segment/weights/weights.h"

namespace raggrad {
namespace sparse_segment {
namespace {

struct OpNames {
  std::string_view op;
  std::string_view dim0;
};

constexpr OpNames Names(SegmentCombiner combiner, bool v2) noexcept {
  if (v2) {
    return {ByCombiner(combiner, "SparseSegmentSumGradV2", "SparseSegmentMeanGradV2", "SparseSegmentSqrtNGradV2"),
            "dense_output_dim0"};
  }
  return {ByCombiner(combiner, "SparseSegmentSumGrad", "SparseSegmentMeanGrad", "SparseSegmentSqrtNGrad"),
          "output_dim0"};
}

Status CheckTypes(const OpNames& names, const TensorView& grad, const TensorView& indices,
                  const TensorView& segment_ids, const TensorView& dim0) noexcept {
  if (Status s = CheckDType(names.op, "grad", grad.dtype, FloatTypes{}); !s.ok()) return s;
  if (Status s = CheckDType(names.op, "indices", indices.dtype, IndexTypes{}); !s.ok()) return s;
  if (Status s = CheckDType(names.op, "segment_ids", segment_ids.dtype, IndexTypes{}); !s.ok()) return s;
  if (Status s = CheckDType(names.op, names.dim0, dim0.dtype, TypeList<int32_t>{}); !s.ok()) return s;
  if (Status s = CheckOperands(names.op, {{"grad", grad}, {"indices", indices}, {"segment_ids", segment_ids}});
      !s.ok()) {
    return s;
  }
  return CheckHostOperand(names.op, {names.dim0, dim0});
}

// Checks in TensorFlow's order: the first fault decides the error.
Result<GradProblem> Check(const SegmentPooling& pooling, bool v2, const TensorView& grad, const TensorView& indices,
                          const TensorView& segment_ids, const TensorView& dim0) noexcept {
  const SegmentCombiner combiner = pooling.combiner;
  const OpNames names = Names(combiner, v2);
  if (Status s = CheckTypes(names, grad, indices, segment_ids, dim0); !s.ok()) return s;
  if (Status s = CheckVector(names.op, "indices", indices); !s.ok()) return s;
  if (Status s = CheckVector(names.op, "segment_ids", segment_ids); !s.ok()) return s;
  if (dim0.rank() != 0) {
    return InvalidArgument(names.op, names.dim0, " should be a scalar. [", names.dim0, ": expected rank 0, got shape ",
                           dim0.shape, "]");
  }
  if (Status s = CheckSameSize(names.op, indices, segment_ids); !s.ok()) return s;
  if (grad.rank() == 0) {
    return InvalidArgument(names.op, "Index must be less than 0, got 0 [grad: expected at least rank 1, got a scalar]");
  }
  const int64_t table_rows = *dim0.As<int32_t>();
  if (table_rows < 0) {
    return InvalidArgument(names.op, "Expected a non-negative size, got ", table_rows, " [", names.dim0, "]");
  }
  const Shape dense = Shape::WithDim0(table_rows, grad.shape.tail());
  if (!dense.valid()) return MakeError(Code::kResourceExhausted, names.op, ": no memory for a shape");
  if (!dense.NumElements()) {
    return InvalidArgument(names.op, "Shape ", dense, " results in overflow when computing number of elements [",
                           names.dim0, ", with the inner dimensions of grad]");
  }
  const SegmentWeights* const weights = WeightsOf(pooling);
  if (Status s = CheckWeights(names.op, weights, indices.dim(0), {"grad", grad}); !s.ok()) return s;
  const bool segments_first = !v2 && combiner != SegmentCombiner::kSum;
  return GradProblem{.ids = {names.op, indices, segment_ids, table_rows, grad.dim(0), segments_first},
                     .combiner = combiner,
                     .grad = grad,
                     .weights = weights};
}

constexpr PaddedForm FormOf(SegmentCombiner combiner) noexcept {
  return ByCombiner(combiner, PaddedForm::kSparseSegmentSumGradV2, PaddedForm::kSparseSegmentMeanGradV2,
                    PaddedForm::kSparseSegmentSqrtNGradV2);
}

}  // namespace

Result<SparseSegmentGradV2Output> GradV2(const GradProblem& problem, const Context& ctx) noexcept {
  return cuda::RunOnDevice<on_cuda::Kernels>(
      problem.ids.op, problem.grad.device, [&] { return on_cpu::GradV2(problem, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.grad_v2(problem, ctx); });
}

Result<SparseSegmentGradV2PaddedOutput> GradV2Padded(const GradProblem& problem, PaddedForm form, int64_t max_unique,
                                                     const Context& ctx) noexcept {
  if (Status s = CheckBound(problem.ids.op, "max_unique", max_unique); !s.ok()) return s;
  return cuda::RunOnDevice<on_cuda::Kernels>(
      problem.ids.op, problem.grad.device, [&] { return on_cpu::GradV2Padded(problem, form, max_unique, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.grad_v2_padded(problem, form, max_unique, ctx); });
}

Result<Tensor> Grad(const GradProblem& problem, const Context& ctx) noexcept {
  return cuda::RunOnDevice<on_cuda::Kernels>(
      problem.ids.op, problem.grad.device, [&] { return on_cpu::Grad(problem, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.grad(problem, ctx); });
}

Status GradApply(const GradProblem& problem, const UpdateProblem& update, const Context& ctx) noexcept {
  return cuda::RunOnDevice<on_cuda::Kernels>(
      problem.ids.op, problem.grad.device, [&] { return on_cpu::GradApply(problem, update, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.grad_apply(problem, update, ctx); });
}

}  // namespace sparse_segment

Result<SparseSegmentGradV2Output> SparseSegmentGradV2(const SegmentPooling& pooling, const TensorView& grad,
                                                      const TensorView& indices, const TensorView& segment_ids,
                                                      const TensorView& dense_output_dim0,
                                                      const Context& ctx) noexcept {
  using namespace sparse_segment;
  const Result<GradProblem> problem = Check(pooling, true, grad, indices, segment_ids, dense_output_dim0);
  if (!problem.ok()) return problem.status();
  return GradV2(*problem, ctx);
}

Result<SparseSegmentGradV2PaddedOutput> SparseSegmentGradV2Padded(const SegmentPooling& pooling, const TensorView& grad,
                                                                  const TensorView& indices,
                                                                  const TensorView& segment_ids,
                                                                  const TensorView& dense_output_dim0,
                                                                  int64_t max_unique, const Context& ctx) noexcept {
  using namespace sparse_segment;
  const Result<GradProblem> problem = Check(pooling, true, grad, indices, segment_ids, dense_output_dim0);
  if (!problem.ok()) return problem.status();
  return GradV2Padded(*problem, FormOf(pooling.combiner), max_unique, ctx);
}

Result<SparseSegmentGradV2PaddedOutput> SparseSegmentGradV2PaddedInRange(
    const SegmentPooling& pooling, const TensorView& grad, const TensorView& indices, const TensorView& segment_ids,
    const TensorView& dense_output_dim0, int64_t max_unique, const Context& ctx) noexcept {
  using namespace sparse_segment;
  Result<GradProblem> problem = Check(pooling, true, grad, indices, segment_ids, dense_output_dim0);
  if (!problem.ok()) return problem.status();
  if (grad.device.is_cpu() || (problem->is_weighted() && problem->is_scaled() && !problem->divides_by_count())) {
    return MakeError(Code::kUnimplemented, problem->ids.op,
                     ": ids out of range are dropped only in device memory, where nothing divides by weights");
  }
  problem->ids.left_out = LeftOut::kBadSegments;
  return GradV2Padded(*problem, FormOf(pooling.combiner), max_unique, ctx);
}

Result<Tensor> SparseSegmentGrad(const SegmentPooling& pooling, const TensorView& grad, const TensorView& indices,
                                 const TensorView& segment_ids, const TensorView& output_dim0,
                                 const Context& ctx) noexcept {
  using namespace sparse_segment;
  const Result<GradProblem> problem = Check(pooling, false, grad, indices, segment_ids, output_dim0);
  if (!problem.ok()) return problem.status();
  return Grad(*problem, ctx);
}

}  // namespace raggrad
