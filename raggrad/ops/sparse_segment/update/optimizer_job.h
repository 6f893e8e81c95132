// A row update, ready for the row loop. Internal to the family.
#pragma once

#include <cmath>

#include "raggrad/cpu/float_environment.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/update/optimizer_step.h"

namespace raggrad::sparse_segment {

// The step of a strip. RowwiseAdagrad's is that of Sgd, with a rate for each row.
inline Optimizer OptimizerOf(const RowUpdate& update) noexcept {
  return std::holds_alternative<Adagrad>(update) ? Optimizer::kAdagrad
         : std::holds_alternative<Adam>(update)  ? Optimizer::kAdam
                                                 : Optimizer::kSgd;
}

inline double AdamRate(const Adam& adam) noexcept {
  const double step = static_cast<double>(adam.step);
  return adam.learning_rate * (std::sqrt(1.0 - std::pow(adam.beta2, step)) / (1.0 - std::pow(adam.beta1, step)));
}

// The constants of the formulas in row_update.h, computed in double and rounded once.
template <class A>
OptimizerJob<A> ReadConstants(const RowUpdate& update) noexcept {
  OptimizerJob<A> job = {};
  if (const auto* sgd = std::get_if<Sgd>(&update)) {
    job.rate = static_cast<A>(sgd->learning_rate);
  } else if (const auto* adagrad = std::get_if<Adagrad>(&update)) {
    job.rate = static_cast<A>(adagrad->learning_rate);
    job.epsilon = static_cast<A>(adagrad->epsilon);
    job.state1 = static_cast<A*>(adagrad->accumulator.data);
  } else if (const auto* adam = std::get_if<Adam>(&update)) {
    job.rate = static_cast<A>(AdamRate(*adam));
    job.epsilon = static_cast<A>(adam->epsilon);
    job.gain1 = static_cast<A>(1.0 - adam->beta1);
    job.gain2 = static_cast<A>(1.0 - adam->beta2);
    job.state1 = static_cast<A*>(adam->m.data);
    job.state2 = static_cast<A*>(adam->v.data);
  } else if (const auto* rowwise = std::get_if<RowwiseAdagrad>(&update)) {
    job.rate = static_cast<A>(rowwise->learning_rate);
    job.epsilon = static_cast<A>(rowwise->epsilon);
    job.state1 = static_cast<A*>(rowwise->accumulator.data);
  }
  if (const TensorView& rate = RateInMemory(update); rate.device.is_cuda()) {
    job.rate_on_device = rate.As<double>();
  } else if (rate.data != nullptr) {
    job.rate = static_cast<A>(*rate.As<double>());
  }
  return job;
}

// The constants with the same bits for every backend: GPU backends do not run in the CPU's floating-point environment.
template <class A>
OptimizerJob<A> ReadOptimizer(const RowUpdate& update) noexcept {
  return cpu::InFloatEnvironment([&] { return ReadConstants<A>(update); });
}

// The types of tables that gradients summed in A can update.
template <class A>
using TableTypes = std::conditional_t<std::is_same_v<A, double>, TypeList<double>, TypeList<Half, BFloat16, float>>;

template <class A>
Result<OptimizerJob<A>> MakeOptimizerJob(const UpdateProblem& problem, int64_t width, const Context& ctx) noexcept {
  const auto steps = cpu::ChooseByIsa(ctx, []<Isa I>() { return &OptimizerStepsFor<I>(); });
  if (!steps.ok()) return steps.status();
  OptimizerJob<A> job = ReadOptimizer<A>(problem.update);
  job.table = problem.table.data;
  job.width = width;
  const int optimizer = static_cast<int>(OptimizerOf(problem.update));
  const Status chosen = Visit(TableTypes<A>{}, problem.table.dtype, [&]<class T>() -> Status {
    job.step = (*steps)->template of<T>().step[optimizer];
    job.prefetch = (*steps)->template of<T>().prefetch[optimizer];
    return {};
  });
  if (!chosen.ok()) return chosen;
  return job;
}

}  // namespace raggrad::sparse_segment
