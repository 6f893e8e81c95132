// A row update, ready for the row loop. Internal to the family.
#pragma once

#include <cmath>

#include "raggrad/cpu/float_environment.h"
#include "raggrad/ops/sparse_segment/isa_choice.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/update_loop.h"

namespace raggrad::sparse_segment {

// The numbers of the formulas in row_update.h, computed in double and rounded once.
template <class A>
UpdateJob<A> ReadNumbers(const RowUpdate& update) noexcept {
  UpdateJob<A> job = {};
  if (const auto* sgd = std::get_if<Sgd>(&update)) {
    job.rate = static_cast<A>(sgd->learning_rate);
  } else if (const auto* adagrad = std::get_if<Adagrad>(&update)) {
    job.rate = static_cast<A>(adagrad->learning_rate);
    job.epsilon = static_cast<A>(adagrad->epsilon);
    job.state1 = static_cast<A*>(adagrad->accumulator.data);
  } else if (const auto* adam = std::get_if<Adam>(&update)) {
    const double step = static_cast<double>(adam->step);
    const double correction = std::sqrt(1.0 - std::pow(adam->beta2, step)) / (1.0 - std::pow(adam->beta1, step));
    job.rate = static_cast<A>(adam->learning_rate * correction);
    job.epsilon = static_cast<A>(adam->epsilon);
    job.gain1 = static_cast<A>(1.0 - adam->beta1);
    job.gain2 = static_cast<A>(1.0 - adam->beta2);
    job.state1 = static_cast<A*>(adam->m.data);
    job.state2 = static_cast<A*>(adam->v.data);
  }
  return job;
}

// The same, for whichever backend: those of GPUs do not run in the environment that numbers are computed in.
template <class A>
UpdateJob<A> ReadRule(const RowUpdate& update) noexcept {
  return ::raggrad::cpu::InFloatEnvironment([&] { return ReadNumbers<A>(update); });
}

template <class T, UpdateRule kRule, class A>
Status ChooseUpdate(const Context& ctx, UpdateJob<A>& job) noexcept {
  const auto update = ChooseByIsa<decltype(job.update)>(ctx, []<Isa I>() { return &UpdateRow<I, T, kRule, A>; });
  const auto prefetch =
      ChooseByIsa<decltype(job.prefetch)>(ctx, []<Isa I>() { return &PrefetchForUpdate<I, T, kRule, A>; });
  if (!update.ok()) return update.status();
  job.update = *update;
  job.prefetch = *prefetch;
  return {};
}

// The tables that gradients summed in A can update.
template <class A>
using TableTypes = std::conditional_t<std::is_same_v<A, double>, TypeList<double>, TypeList<Half, BFloat16, float>>;

template <class A>
Result<UpdateJob<A>> MakeUpdateJob(const UpdateProblem& problem, int64_t width, const Context& ctx) noexcept {
  UpdateJob<A> job = ReadRule<A>(problem.rule);
  job.table = problem.table.data;
  job.width = width;
  const Status chosen = Visit(TableTypes<A>{}, problem.table.dtype, [&]<class T>() -> Status {
    if (std::holds_alternative<Sgd>(problem.rule)) return ChooseUpdate<T, UpdateRule::kSgd>(ctx, job);
    if (std::holds_alternative<Adagrad>(problem.rule)) return ChooseUpdate<T, UpdateRule::kAdagrad>(ctx, job);
    return ChooseUpdate<T, UpdateRule::kAdam>(ctx, job);
  });
  if (!chosen.ok()) return chosen;
  return job;
}

}  // namespace raggrad::sparse_segment
