// Checks of the gradient that need only shapes and types.
#include "raggrad/core/error_text.h"
#include "raggrad/core/operands.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/sparse_fill_empty_rows/kernels.h"
#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"

namespace raggrad {
namespace sparse_fill_empty_rows {
namespace {

Status CheckVector(std::string_view op, std::string_view argument, const TensorView& view) noexcept {
  if (view.rank() == 1) return {};
  return InvalidArgument(op, argument, " must be a vector, saw: ", view.shape, " [", argument,
                         ": expected rank 1, got rank ", view.rank(), "]");
}

// Checks in TensorFlow's order: the first fault decides the error.
Result<GradProblem> Check(std::string_view op, const TensorView& reverse_index_map,
                          const TensorView& grad_values) noexcept {
  constexpr std::string_view kMap = "reverse_index_map";
  constexpr std::string_view kGrad = "grad_values";
  if (Status s = CheckDType(op, kMap, reverse_index_map.dtype, TypeList<int64_t>{}); !s.ok()) return s;
  if (Status s = CheckDType(op, kGrad, grad_values.dtype, NumberTypes{}); !s.ok()) return s;
  if (Status s = CheckOperands(op, {{kMap, reverse_index_map}, {kGrad, grad_values}}); !s.ok()) return s;
  if (Status s = CheckVector(op, kMap, reverse_index_map); !s.ok()) return s;
  if (Status s = CheckVector(op, kGrad, grad_values); !s.ok()) return s;
  const std::span map(reverse_index_map.As<int64_t>(), static_cast<size_t>(reverse_index_map.dim(0)));
  return GradProblem{op, map, grad_values};
}

Result<FillEmptyRowsGradOutput> Grad(std::string_view op, const TensorView& reverse_index_map,
                                     const TensorView& grad_values, const Context& ctx) noexcept {
  const Result<GradProblem> problem = Check(op, reverse_index_map, grad_values);
  if (!problem.ok()) return problem.status();
  return cuda::RunOnDevice<on_cuda::Kernels>(
      op, grad_values.device, [&] { return on_cpu::Grad(*problem, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.grad(*problem, ctx); });
}

}  // namespace

Status NoSuchPlace(const GradProblem& problem, int64_t position, int64_t place) noexcept {
  return InvalidArgument(problem.op, "Elements in reverse index must be in [0, ", problem.n_full(), ") but got ", place,
                         " [reverse_index_map[", position, "]: expected a place in grad_values, got ", place, "]");
}

}  // namespace sparse_fill_empty_rows

Result<FillEmptyRowsGradOutput> SparseFillEmptyRowsGrad(const TensorView& reverse_index_map,
                                                        const TensorView& grad_values, const Context& ctx) noexcept {
  return sparse_fill_empty_rows::Grad("SparseFillEmptyRowsGrad", reverse_index_map, grad_values, ctx);
}

Result<FillEmptyRowsGradOutput> RaggedFillEmptyRowsGrad(const TensorView& reverse_index_map,
                                                        const TensorView& grad_values, const Context& ctx) noexcept {
  return sparse_fill_empty_rows::Grad("RaggedFillEmptyRowsGrad", reverse_index_map, grad_values, ctx);
}

}  // namespace raggrad
