// Checks of the gradient that need only shapes and types.
#include "raggrad/core/error_text.h"
#include "raggrad/core/operands.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/sparse_slice/kernels.h"
#include "raggrad/ops/sparse_slice/sparse_slice.h"

namespace raggrad {
namespace sparse_slice {
namespace {

constexpr std::string_view kOp = "SparseSliceGrad";

// Checks in TensorFlow's order: the first fault decides the error.
Result<GradProblem> Check(const TensorView& backprop_val_grad, const TensorView& input_indices,
                          const TensorView& input_start, const TensorView& output_indices) noexcept {
  constexpr TypeList<int64_t> kInt64{};
  if (Status s = CheckDType(kOp, "backprop_val_grad", backprop_val_grad.dtype, ValueTypes{}); !s.ok()) return s;
  if (Status s = CheckDType(kOp, "input_indices", input_indices.dtype, kInt64); !s.ok()) return s;
  if (Status s = CheckDType(kOp, "input_start", input_start.dtype, kInt64); !s.ok()) return s;
  if (Status s = CheckDType(kOp, "output_indices", output_indices.dtype, kInt64); !s.ok()) return s;
  if (Status s = CheckOperands(kOp, {{"backprop_val_grad", backprop_val_grad},
                                     {"input_indices", input_indices},
                                     {"output_indices", output_indices}});
      !s.ok()) {
    return s;
  }
  if (Status s = CheckHostOperand(kOp, {"input_start", input_start}); !s.ok()) return s;

  if (input_indices.rank() != 2 || output_indices.rank() != 2) {
    return InvalidArgument(
        kOp, "Input and output indices should be matrices but received shapes: ", input_indices.shape, " and ",
        output_indices.shape, " [", input_indices.rank() != 2 ? "input_indices" : "output_indices",
        ": expected rank 2, got rank ", input_indices.rank() != 2 ? input_indices.rank() : output_indices.rank(), "]");
  }
  if (backprop_val_grad.rank() != 1) {
    return InvalidArgument(kOp,
                           "Input backprop_val_grad should be a vector but received shape: ", backprop_val_grad.shape,
                           " [backprop_val_grad: expected rank 1, got rank ", backprop_val_grad.rank(), "]");
  }
  const int64_t n = input_indices.dim(0);
  const int64_t m = output_indices.dim(0);
  const int64_t d = input_indices.dim(1);
  if (output_indices.dim(1) != d) {
    return InvalidArgument(kOp, "The input and output should have the same ndims: got: ", d, " and ",
                           output_indices.dim(1), " [output_indices: expected ", d, " columns, got ",
                           output_indices.dim(1), "]");
  }
  if (m > n) {
    return InvalidArgument(kOp, "# rows of output_indices should be not greater than of input_indices, got ", m,
                           " and ", n, " [output_indices: expected at most ", n, " rows, got ", m, "]");
  }
  if (backprop_val_grad.dim(0) != m) {
    return InvalidArgument(kOp,
                           "# elements of backprop_val_grad and # rows of output_indices should match (#nnz of sum)",
                           ": got ", backprop_val_grad.dim(0), " and ", m, " [backprop_val_grad: expected ", m,
                           " elements, got ", backprop_val_grad.dim(0), "]");
  }
  if (input_start.rank() != 1) {
    return InvalidArgument(kOp, "The input_start should be a vector but received shape ", input_start.shape,
                           " [input_start: expected rank 1, got rank ", input_start.rank(), "]");
  }
  if (input_start.dim(0) != d) {
    return InvalidArgument(kOp, "Expected input_start to be a vector of length ", d, " but got length ",
                           input_start.dim(0), " [input_start: expected ", d, " elements, got ", input_start.dim(0),
                           "]");
  }

  const std::span start(input_start.As<int64_t>(), static_cast<size_t>(d));
  return GradProblem{backprop_val_grad, input_indices.As<int64_t>(), start, output_indices.As<int64_t>(), n, m};
}

}  // namespace

Status NotAllPropagated(const GradProblem& problem, int64_t used) noexcept {
  return MakeError(
      Code::kInternal, kOp, ": Elements of backprop_val_grad aren't all propagated. Num elements:", problem.m,
      ", used: ", used, " [output_indices[", used,
      "]: expected a row of input_indices, behind the one used last, that equals it plus input_start; got ", "none]");
}

}  // namespace sparse_slice

Result<Tensor> SparseSliceGrad(const TensorView& backprop_val_grad, const TensorView& input_indices,
                               const TensorView& input_start, const TensorView& output_indices,
                               const Context& ctx) noexcept {
  using namespace sparse_slice;
  const Result<GradProblem> problem = Check(backprop_val_grad, input_indices, input_start, output_indices);
  if (!problem.ok()) return problem.status();
  return cuda::RunOnDevice<sparse_slice::on_cuda::Kernels>(
      kOp, backprop_val_grad.device, [&] { return sparse_slice::on_cpu::Grad(*problem, ctx); },
      [&](const sparse_slice::on_cuda::Kernels& kernels) { return kernels.grad(*problem, ctx); });
}

}  // namespace raggrad
