// Compiled once per level, which RAGGRAD_TARGET_ISA names. Everything here is a template of that level or always
// inlined, so that the linker cannot take a function of this object for one of another (ARCHITECTURE.md).
#include "raggrad/ops/sparse_segment/update/optimizer_step.h"

#include "raggrad/ops/sparse_segment/row_ops.h"

namespace raggrad::sparse_segment {
namespace {

template <Isa I>
[[gnu::always_inline]] inline float SquareRoot(float x) noexcept {
  return __builtin_sqrtf(x);
}
template <Isa I>
[[gnu::always_inline]] inline double SquareRoot(double x) noexcept {
  return __builtin_sqrt(x);
}

// Subtracts the optimizer's step from weights[c]. The strips do not overlap.
template <Isa I, Optimizer kOptimizer, class A>
[[gnu::always_inline]] inline void StepColumns(const OptimizerJob<A>& job, const A* __restrict gradient,
                                               A* __restrict state1, A* __restrict state2, A* __restrict weights,
                                               int64_t columns) noexcept {
  for (int64_t c = 0; c < columns; ++c) {
    const A g = gradient[c];
    if constexpr (kOptimizer == Optimizer::kSgd) {
      weights[c] -= job.rate * g;
    } else if constexpr (kOptimizer == Optimizer::kAdagrad) {
      const A sum = state1[c] + g * g;
      state1[c] = sum;
      weights[c] -= job.rate * g / (SquareRoot<I>(sum) + job.epsilon);
    } else {
      const A m = state1[c] + (g - state1[c]) * job.gain1;
      const A v = state2[c] + (g * g - state2[c]) * job.gain2;
      state1[c] = m;
      state2[c] = v;
      weights[c] -= m * job.rate / (SquareRoot<I>(v) + job.epsilon);
    }
  }
}

template <Isa I, class T, Optimizer kOptimizer, class A = SumType<T>>
void StepRow(const OptimizerJob<A>& job, int64_t row, int64_t column, int64_t columns, const A* gradient) noexcept {
  const int64_t offset = row * job.width + column;
  T* const weights = static_cast<T*>(job.table) + offset;
  A* const state1 = kOptimizer == Optimizer::kSgd ? nullptr : job.state1 + offset;
  A* const state2 = kOptimizer == Optimizer::kAdam ? job.state2 + offset : nullptr;
  if constexpr (kIsShortFloat<T>) {
    float wide[kStrip<float>];
    cpu::Convert<I>::WidenRow(weights, wide, columns);
    StepColumns<I, kOptimizer>(job, gradient, state1, state2, wide, columns);
    cpu::Convert<I>::NarrowRow(wide, weights, columns);
  } else {
    StepColumns<I, kOptimizer>(job, gradient, state1, state2, weights, columns);
  }
}

template <Isa I, class T, Optimizer kOptimizer, class A = SumType<T>>
void Prefetch(const OptimizerJob<A>& job, int64_t row, int64_t column, int64_t columns) noexcept {
  const int64_t offset = row * job.width + column;
  PrefetchRow<I>(static_cast<const T*>(job.table) + offset, columns);
  if constexpr (kOptimizer != Optimizer::kSgd) PrefetchRow<I>(job.state1 + offset, columns);
  if constexpr (kOptimizer == Optimizer::kAdam) PrefetchRow<I>(job.state2 + offset, columns);
}

template <Isa I, class T>
consteval OptimizerStepsOf<T> StepsOf() noexcept {
  return {{&StepRow<I, T, Optimizer::kSgd>, &StepRow<I, T, Optimizer::kAdagrad>, &StepRow<I, T, Optimizer::kAdam>},
          {&Prefetch<I, T, Optimizer::kSgd>, &Prefetch<I, T, Optimizer::kAdagrad>, &Prefetch<I, T, Optimizer::kAdam>}};
}

template <Isa I, class... Ts>
consteval OptimizerSteps StepsOf(TypeList<Ts...>) noexcept {
  return {StepsOf<I, Ts>()...};
}

}  // namespace

template <Isa I>
const OptimizerSteps& OptimizerStepsFor() noexcept {
  static constexpr OptimizerSteps kSteps = StepsOf<I>(FloatTypes{});
  return kSteps;
}

template const OptimizerSteps& OptimizerStepsFor<RAGGRAD_TARGET_ISA>() noexcept;

}  // namespace raggrad::sparse_segment
