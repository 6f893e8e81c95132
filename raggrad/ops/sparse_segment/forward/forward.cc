// Checks of the forwards that need only shapes and types (and num_segments, which is always in host memory), and the
// choice of the backend.
#include "raggrad/core/operands.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"
#include "raggrad/ops/sparse_segment/weights/weights.h"

namespace raggrad {
namespace sparse_segment {
namespace {

constexpr std::string_view Name(SegmentCombiner combiner, bool with_num_segments) noexcept {
  return with_num_segments ? ByCombiner(combiner, "SparseSegmentSumWithNumSegments", "SparseSegmentMeanWithNumSegments",
                                        "SparseSegmentSqrtNWithNumSegments")
                           : ByCombiner(combiner, "SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN");
}

Status CheckTypes(std::string_view op, SegmentCombiner combiner, const TensorView& data, const TensorView& indices,
                  const TensorView& segment_ids, const TensorView* num_segments) noexcept {
  if (Status s = CheckDataType(op, combiner, data.dtype); !s.ok()) return s;
  if (Status s = CheckDType(op, "indices", indices.dtype, IndexTypes{}); !s.ok()) return s;
  if (Status s = CheckDType(op, "segment_ids", segment_ids.dtype, IndexTypes{}); !s.ok()) return s;
  if (num_segments != nullptr) {
    if (Status s = CheckDType(op, "num_segments", num_segments->dtype, IndexTypes{}); !s.ok()) return s;
  }
  if (Status s = CheckOperands(op, {{"data", data}, {"indices", indices}, {"segment_ids", segment_ids}}); !s.ok()) {
    return s;
  }
  return num_segments != nullptr ? CheckHostOperand(op, {"num_segments", *num_segments}) : Status();
}

Result<int64_t> ReadNumSegments(std::string_view op, const TensorView& num_segments) noexcept {
  if (num_segments.rank() != 0) {
    return InvalidArgument(op, "num_segments should be a scalar, not shape ", num_segments.shape,
                           " [num_segments: expected rank 0, got rank ", num_segments.rank(), "]");
  }
  const int64_t count = num_segments.dtype == DType::kInt32 ? *num_segments.As<int32_t>() : *num_segments.As<int64_t>();
  if (count < 0) {
    return InvalidArgument(op, "segment ids must be >= 0 [num_segments: expected at least 0, got ", count, "]");
  }
  if (count > INT32_MAX) {  // TensorFlow takes the low 32 bits
    return InvalidArgument(op, "num_segments must be < 2^31 [num_segments: expected at most ", INT32_MAX, ", got ",
                           count, "]");
  }
  return count;
}

// Checks in TensorFlow's order: the first fault decides the error. num_segments may be null.
Result<ForwardProblem> Check(const SegmentPooling& pooling, const TensorView& data, const TensorView& indices,
                             const TensorView& segment_ids, const TensorView* num_segments) noexcept {
  const std::string_view op = Name(pooling.combiner, num_segments != nullptr);
  if (Status s = CheckTypes(op, pooling.combiner, data, indices, segment_ids, num_segments); !s.ok()) return s;
  std::optional<int64_t> rows;
  if (num_segments != nullptr) {
    const Result<int64_t> count = ReadNumSegments(op, *num_segments);
    if (!count.ok()) return count.status();
    rows = *count;
  }
  if (Status s = CheckIdShapes(op, indices, segment_ids); !s.ok()) return s;
  if (data.rank() == 0) {
    return InvalidArgument(op, "Shape must be at least rank 1 [data: expected at least rank 1, got a scalar]");
  }
  const SegmentWeights* const weights = WeightsOf(pooling);
  if (Status s = CheckWeights(op, weights, indices.dim(0), {"data", data}); !s.ok()) return s;
  return ForwardProblem{.op = op,
                        .combiner = pooling.combiner,
                        .data = data,
                        .indices = indices,
                        .segment_ids = segment_ids,
                        .num_segments = rows,
                        .weights = weights};
}

Result<Tensor> CheckAndRun(const SegmentPooling& pooling, const TensorView& data, const TensorView& indices,
                           const TensorView& segment_ids, const TensorView* num_segments, const Context& ctx) noexcept {
  const Result<ForwardProblem> problem = Check(pooling, data, indices, segment_ids, num_segments);
  if (!problem.ok()) return problem.status();
  return Forward(*problem, ctx);
}

}  // namespace

Result<Tensor> Forward(const ForwardProblem& problem, const Context& ctx) noexcept {
  return cuda::RunOnDevice<on_cuda::Kernels>(
      problem.op, problem.data.device, [&] { return on_cpu::Forward(problem, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.forward(problem, ctx); });
}

}  // namespace sparse_segment

Result<Tensor> SparseSegment(const SegmentPooling& pooling, const TensorView& data, const TensorView& indices,
                             const TensorView& segment_ids, const Context& ctx) noexcept {
  return sparse_segment::CheckAndRun(pooling, data, indices, segment_ids, nullptr, ctx);
}

Result<Tensor> SparseSegmentWithNumSegments(const SegmentPooling& pooling, const TensorView& data,
                                            const TensorView& indices, const TensorView& segment_ids,
                                            const TensorView& num_segments, const Context& ctx) noexcept {
  return sparse_segment::CheckAndRun(pooling, data, indices, segment_ids, &num_segments, ctx);
}

}  // namespace raggrad
