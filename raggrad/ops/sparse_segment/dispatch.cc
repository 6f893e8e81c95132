// Chooses the backend by the device of the operands.
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/sparse_segment/kernels.h"

namespace raggrad::sparse_segment {

using cuda::RunOnDevice;

Result<SparseSegmentGradV2Output> GradV2(const GradProblem& problem, const Context& ctx) noexcept {
  return RunOnDevice<on_cuda::Kernels>(
      problem.ids.op, problem.grad.device, [&] { return on_cpu::GradV2(problem, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.grad_v2(problem, ctx); });
}

Result<SparseSegmentGradV2PaddedOutput> GradV2Padded(const GradProblem& problem, PaddedForm form, int64_t max_unique,
                                                     const Context& ctx) noexcept {
  if (Status s = CheckBound(problem.ids.op, "max_unique", max_unique); !s.ok()) return s;
  return RunOnDevice<on_cuda::Kernels>(
      problem.ids.op, problem.grad.device, [&] { return on_cpu::GradV2Padded(problem, form, max_unique, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.grad_v2_padded(problem, form, max_unique, ctx); });
}

Result<Tensor> Grad(const GradProblem& problem, const Context& ctx) noexcept {
  return RunOnDevice<on_cuda::Kernels>(
      problem.ids.op, problem.grad.device, [&] { return on_cpu::Grad(problem, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.grad(problem, ctx); });
}

Status GradApply(const GradProblem& problem, const UpdateProblem& update, const Context& ctx) noexcept {
  return RunOnDevice<on_cuda::Kernels>(
      problem.ids.op, problem.grad.device, [&] { return on_cpu::GradApply(problem, update, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.grad_apply(problem, update, ctx); });
}

Result<Tensor> Forward(const ForwardProblem& problem, const Context& ctx) noexcept {
  return RunOnDevice<on_cuda::Kernels>(
      problem.op, problem.data.device, [&] { return on_cpu::Forward(problem, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.forward(problem, ctx); });
}

Result<Tensor> WeightsGrad(const WeightsGradProblem& problem, const Context& ctx) noexcept {
  const std::string_view op = problem.forward.op;
  return RunOnDevice<on_cuda::Kernels>(
      op, problem.grad.device, [&] { return on_cpu::WeightsGrad(problem, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.weights_grad(problem, ctx); });
}

}  // namespace raggrad::sparse_segment
