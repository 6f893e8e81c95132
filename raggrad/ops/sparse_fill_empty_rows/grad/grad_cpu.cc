// CPU backend of the gradient.
#include "raggrad/ops/sparse_fill_empty_rows/grad/default_sum.h"
#include "raggrad/ops/sparse_fill_empty_rows/grad/exact_sum.h"
#include "raggrad/ops/sparse_fill_empty_rows/grad/separate.h"
#include "raggrad/ops/sparse_fill_empty_rows/kernels.h"

namespace raggrad::sparse_fill_empty_rows::on_cpu {

Result<FillEmptyRowsGradOutput> Grad(const GradProblem& problem, const Context& ctx) noexcept {
  const DType dtype = problem.grad_values.dtype;
  auto d_values = AllocateOutput(ctx, 0, dtype, Shape{problem.n()});
  if (!d_values.ok()) return d_values.status();
  auto d_default_value = AllocateOutput(ctx, 1, dtype, Shape{});
  if (!d_default_value.ok()) return d_default_value.status();
  Status status = Visit(NumberTypes{}, dtype, [&]<class T>() -> Status {
    using E = Cell<sizeof(T)>;
    T* const result = d_default_value->template As<T>();
    // Integers have one sum in any order.
    const Accumulation order =
        std::is_integral_v<T> ? Accumulation::kSequential : ctx.accumulation.value_or(Accumulation::kSequential);
    RunningSum<T> sum;
    const Result<Others<E>> others =
        Separate(problem, ctx, d_values->template As<E>(), order == Accumulation::kSequential ? &sum : nullptr);
    if (!others.ok()) return others.status();
    const T* const values = reinterpret_cast<const T*>(others->values.data());
    if constexpr (!std::is_integral_v<T>) {
      if (order == Accumulation::kFast) return SumAsTree(values, others->count, ctx, result);
      if (order == Accumulation::kReproducible) return SumReproducibly(values, others->count, ctx, result);
    }
    *result = sum.value();
    return {};
  });
  if (!status.ok()) return status;
  return FillEmptyRowsGradOutput{*std::move(d_values), *std::move(d_default_value)};
}

}  // namespace raggrad::sparse_fill_empty_rows::on_cpu
