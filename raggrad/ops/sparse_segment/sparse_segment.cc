#include "raggrad/ops/sparse_segment/sparse_segment.h"

#include "raggrad/core/error_text.h"
#include "raggrad/core/operands.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/kernels.h"

namespace raggrad {
namespace sparse_segment {
namespace {

struct OpNames {
  std::string_view op;
  std::string_view dim0;
};

constexpr OpNames Names(SegmentCombiner combiner, bool v2) noexcept {
  const std::string_view dim0 = v2 ? "dense_output_dim0" : "output_dim0";
  switch (combiner) {
    case SegmentCombiner::kSum:
      return {v2 ? "SparseSegmentSumGradV2" : "SparseSegmentSumGrad", dim0};
    case SegmentCombiner::kMean:
      return {v2 ? "SparseSegmentMeanGradV2" : "SparseSegmentMeanGrad", dim0};
    case SegmentCombiner::kSqrtN:
      return {v2 ? "SparseSegmentSqrtNGradV2" : "SparseSegmentSqrtNGrad", dim0};
  }
  return {"SparseSegmentGrad", dim0};
}

Status CheckTypes(const OpNames& names, const TensorView& grad, const TensorView& indices,
                  const TensorView& segment_ids, const TensorView& dim0) noexcept {
  if (Status s = CheckDType(names.op, "grad", grad.dtype, FloatTypes{}); !s.ok()) return s;
  if (Status s = CheckDType(names.op, "indices", indices.dtype, IndexTypes{}); !s.ok()) return s;
  if (Status s = CheckDType(names.op, "segment_ids", segment_ids.dtype, IndexTypes{}); !s.ok()) return s;
  if (Status s = CheckDType(names.op, names.dim0, dim0.dtype, TypeList<int32_t>{}); !s.ok()) return s;
  if (indices.device != grad.device || segment_ids.device != grad.device) {
    return InvalidArgument(names.op, "grad, indices and segment_ids must be on the same device.");
  }
  if (dim0.device != Device::kCpu) return InvalidArgument(names.op, names.dim0, " must be in host memory.");
  if (Status s = CheckOperands(names.op, {{"grad", grad}, {"indices", indices}, {"segment_ids", segment_ids}});
      !s.ok()) {
    return s;
  }
  return CheckHostOperand(names.op, {names.dim0, dim0});
}

// In TensorFlow's order: the first fault decides which error it is.
Result<Problem> Check(SegmentCombiner combiner, bool v2, const TensorView& grad, const TensorView& indices,
                      const TensorView& segment_ids, const TensorView& dim0) noexcept {
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
  const int64_t rows = *dim0.As<int32_t>();
  if (rows < 0) {
    return InvalidArgument(names.op, "Expected a non-negative size, got ", rows, " [", names.dim0, "]");
  }
  const Shape dense = Shape::WithDim0(rows, grad.shape.tail());
  if (!dense.valid()) return MakeError(Code::kResourceExhausted, names.op, ": no memory for a shape");
  if (!dense.NumElements()) {
    return InvalidArgument(names.op, "Shape ", dense, " results in overflow when computing number of elements [",
                           names.dim0, ", with the inner dimensions of grad]");
  }
  // rows == 0 hides an inner product that overflows; then there is nothing to compute and the width is not used.
  const int64_t width = Shape::Product(grad.shape.tail()).value_or(0);
  const bool segments_first = !v2 && combiner != SegmentCombiner::kSum;
  return Problem{names.op, combiner, grad, indices, segment_ids, rows, width, segments_first};
}

Status NoSuchDevice(const Problem& problem) noexcept {
  return MakeError(Code::kUnimplemented, problem.op, ": this build computes in host memory only");
}

}  // namespace
}  // namespace sparse_segment

Result<SparseSegmentGradV2Output> SparseSegmentGradV2(SegmentCombiner combiner, const TensorView& grad,
                                                      const TensorView& indices, const TensorView& segment_ids,
                                                      const TensorView& dense_output_dim0,
                                                      const Context& ctx) noexcept {
  using namespace sparse_segment;
  const Result<Problem> problem = Check(combiner, true, grad, indices, segment_ids, dense_output_dim0);
  if (!problem.ok()) return problem.status();
  if (grad.device == Device::kCpu) return sparse_segment::cpu::GradV2(*problem, ctx);
  return NoSuchDevice(*problem);
}

Result<Tensor> SparseSegmentGrad(SegmentCombiner combiner, const TensorView& grad, const TensorView& indices,
                                 const TensorView& segment_ids, const TensorView& output_dim0,
                                 const Context& ctx) noexcept {
  using namespace sparse_segment;
  const Result<Problem> problem = Check(combiner, false, grad, indices, segment_ids, output_dim0);
  if (!problem.ok()) return problem.status();
  if (grad.device == Device::kCpu) return sparse_segment::cpu::Grad(*problem, ctx);
  return NoSuchDevice(*problem);
}

}  // namespace raggrad
