// The choice of the backend: by the device that the operands are on.
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/sparse_segment/kernels.h"

namespace raggrad::sparse_segment {

using ::raggrad::cuda::RunOnDevice;

Result<SparseSegmentGradV2Output> GradV2(const Problem& problem, const Context& ctx) noexcept {
  return RunOnDevice<cuda::Kernels>(
      problem.op, problem.grad.device, [&] { return cpu::GradV2(problem, ctx); },
      [&](const cuda::Kernels& kernels) { return kernels.grad_v2(problem, ctx); });
}

Result<Tensor> Grad(const Problem& problem, const Context& ctx) noexcept {
  return RunOnDevice<cuda::Kernels>(
      problem.op, problem.grad.device, [&] { return cpu::Grad(problem, ctx); },
      [&](const cuda::Kernels& kernels) { return kernels.grad(problem, ctx); });
}

Status GradApply(const Problem& problem, const UpdateProblem& update, const Context& ctx) noexcept {
  return RunOnDevice<cuda::Kernels>(
      problem.op, problem.grad.device, [&] { return cpu::GradApply(problem, update, ctx); },
      [&](const cuda::Kernels& kernels) { return kernels.grad_apply(problem, update, ctx); });
}

Result<Tensor> Forward(const ForwardProblem& problem, const Context& ctx) noexcept {
  return RunOnDevice<cuda::Kernels>(
      problem.op, problem.data.device, [&] { return cpu::Forward(problem, ctx); },
      [&](const cuda::Kernels& kernels) { return kernels.forward(problem, ctx); });
}

}  // namespace raggrad::sparse_segment
