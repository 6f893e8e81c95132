// Checks of the gradients that need only shapes and types (and dim0, which is always in host memory), and padding.
#include <algorithm>
#include <cstring>

#include "raggrad/core/error_text.h"
#include "raggrad/core/operands.h"
#include "raggrad/cuda/host_copy.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/sparse_segment/fault.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

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
  if (Status s = CheckOperands(names.op, {{"grad", grad}, {"indices", indices}, {"segment_ids", segment_ids}});
      !s.ok()) {
    return s;
  }
  return CheckHostOperand(names.op, {names.dim0, dim0});
}

Status TooManyRows(std::string_view op, int64_t max_unique, int64_t num_unique) noexcept {
  return MakeError(Code::kResourceExhausted, op, ": there are more rows than there is room for [max_unique: expected ",
                   num_unique, " or more, got ", max_unique, "]");
}

// Checks in TensorFlow's order: the first fault decides the error.
Result<GradProblem> Check(SegmentCombiner combiner, bool v2, const TensorView& grad, const TensorView& indices,
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
  const bool segments_first = !v2 && combiner != SegmentCombiner::kSum;
  return GradProblem{.ids = {names.op, indices, segment_ids, table_rows, grad.dim(0), segments_first},
                     .combiner = combiner,
                     .grad = grad};
}

// Pads rows to the size that the caller asked for, and adds a report.
Result<SparseSegmentGradV2PaddedOutput> Pad(const GradProblem& problem, const SparseSegmentGradV2Output& rows,
                                            int64_t max_unique, const Context& ctx) noexcept {
  const int64_t num_unique = rows.output.shape()[0];
  if (num_unique > max_unique) return TooManyRows(problem.ids.op, max_unique, num_unique);
  Result<Tensor> output =
      AllocateOutput(ctx, 0, problem.grad.dtype, Shape::WithDim0(max_unique, problem.grad.shape.tail()));
  if (!output.ok()) return output.status();
  Result<Tensor> indices = AllocateOutput(ctx, 1, problem.index_dtype, Shape{max_unique});
  if (!indices.ok()) return indices.status();
  Result<Tensor> report = AllocateOutput(ctx, 2, DType::kUInt64, Shape{kReportWords});
  if (!report.ok()) return report.status();
  const size_t used = static_cast<size_t>(num_unique * problem.width) * DTypeSize(problem.grad.dtype);
  if (used > 0) std::memcpy(output->data(), rows.output.view().data, used);
  if (output->bytes() > used) std::memset(output->As<char>() + used, 0, output->bytes() - used);
  const Status written = Visit(IndexTypes{}, problem.index_dtype, [&]<class Idx>() -> Status {
    Idx* const rest = std::copy_n(rows.sorted_unique_indices.As<Idx>(), num_unique, indices->As<Idx>());
    std::fill_n(rest, max_unique - num_unique, static_cast<Idx>(problem.ids.table_rows));
    return {};
  });
  if (!written.ok()) return written;
  *report->As<Report>() = {};
  report->As<Report>()->num_unique = static_cast<uint64_t>(num_unique);
  return SparseSegmentGradV2PaddedOutput{*std::move(output), *std::move(indices), *std::move(report)};
}

}  // namespace
}  // namespace sparse_segment

Result<SparseSegmentGradV2Output> SparseSegmentGradV2(SegmentCombiner combiner, const TensorView& grad,
                                                      const TensorView& indices, const TensorView& segment_ids,
                                                      const TensorView& dense_output_dim0,
                                                      const Context& ctx) noexcept {
  using namespace sparse_segment;
  const Result<GradProblem> problem = Check(combiner, true, grad, indices, segment_ids, dense_output_dim0);
  if (!problem.ok()) return problem.status();
  return GradV2(*problem, ctx);
}

Result<SparseSegmentGradV2PaddedOutput> SparseSegmentGradV2Padded(SegmentCombiner combiner, const TensorView& grad,
                                                                  const TensorView& indices,
                                                                  const TensorView& segment_ids,
                                                                  const TensorView& dense_output_dim0,
                                                                  int64_t max_unique, const Context& ctx) noexcept {
  using namespace sparse_segment;
  const Result<GradProblem> problem = Check(combiner, true, grad, indices, segment_ids, dense_output_dim0);
  if (!problem.ok()) return problem.status();
  if (max_unique < 0) {
    return InvalidArgument(problem->ids.op, "max_unique is out of range [max_unique: expected at least 0, got ",
                           max_unique, "]");
  }
  return cuda::RunOnDevice<sparse_segment::on_cuda::Kernels>(
      problem->ids.op, grad.device,
      [&]() -> Result<SparseSegmentGradV2PaddedOutput> {
        const Result<SparseSegmentGradV2Output> rows = sparse_segment::on_cpu::GradV2(*problem, ctx);
        if (!rows.ok()) return rows.status();
        return Pad(*problem, *rows, max_unique, ctx);
      },
      [&](const sparse_segment::on_cuda::Kernels& kernels) {
        return kernels.grad_v2_padded(*problem, max_unique, ctx);
      });
}

Result<int64_t> CheckPadded(const SparseSegmentGradV2PaddedOutput& padded, const Context& ctx) noexcept {
  using namespace sparse_segment;
  const TensorView& words = padded.report.view();
  if (Status s = CheckOperands("CheckPadded", {{"report", words}}); !s.ok()) return s;
  Report report;
  if (words.device.is_cpu()) {
    report = *words.As<Report>();
  } else {
    const Result<Tensor> copy = cuda::CopyToHost("CheckPadded", words, ctx);
    if (!copy.ok()) return copy.status();
    report = *copy->As<Report>();
  }
  const OpNames names = Names(static_cast<SegmentCombiner>(report.combiner), /*v2=*/true);
  if (report.fault != Fault::kNone) {
    return FaultError(names.op, report.fault, report.value, static_cast<int64_t>(report.table_rows),
                      static_cast<int64_t>(report.num_segments));
  }
  const int64_t num_unique = static_cast<int64_t>(report.num_unique);
  const int64_t max_unique = padded.output.shape()[0];
  if (num_unique > max_unique) return TooManyRows(names.op, max_unique, num_unique);
  return num_unique;
}

Result<Tensor> SparseSegmentGrad(SegmentCombiner combiner, const TensorView& grad, const TensorView& indices,
                                 const TensorView& segment_ids, const TensorView& output_dim0,
                                 const Context& ctx) noexcept {
  using namespace sparse_segment;
  const Result<GradProblem> problem = Check(combiner, false, grad, indices, segment_ids, output_dim0);
  if (!problem.ok()) return problem.status();
  return Grad(*problem, ctx);
}

}  // namespace raggrad
