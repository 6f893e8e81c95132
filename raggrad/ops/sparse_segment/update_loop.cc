// Compiled with RAGGRAD_TARGET_ISA naming the level. Everything here is a template of that level (or always inlined),
// so that no function in this object can be taken for one of another object: see cmake/raggrad_targets.cmake.
#include "raggrad/ops/sparse_segment/update_loop.h"

#include "raggrad/ops/sparse_segment/row_ops.h"

namespace raggrad::sparse_segment {
namespace {

constexpr Isa kIsa = RAGGRAD_TARGET_ISA;

template <Isa I>
[[gnu::always_inline]] inline float SquareRoot(float x) noexcept {
  return __builtin_sqrtf(x);
}
template <Isa I>
[[gnu::always_inline]] inline double SquareRoot(double x) noexcept {
  return __builtin_sqrt(x);
}

// weights[c] - the step of the rule. The strips do not overlap.
template <Isa I, UpdateRule kRule, class A>
[[gnu::always_inline]] inline void Step(const UpdateJob<A>& job, const A* __restrict gradient, A* __restrict state1,
                                        A* __restrict state2, A* __restrict weights, int64_t columns) noexcept {
  for (int64_t c = 0; c < columns; ++c) {
    const A g = gradient[c];
    if constexpr (kRule == UpdateRule::kSgd) {
      weights[c] -= job.rate * g;
    } else if constexpr (kRule == UpdateRule::kAdagrad) {
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

}  // namespace

template <Isa I, class T, UpdateRule kRule, class A>
void UpdateRow(const UpdateJob<A>& job, int64_t row, int64_t column, int64_t columns, const A* gradient) noexcept {
  const int64_t offset = row * job.width + column;
  T* const weights = static_cast<T*>(job.table) + offset;
  A* const state1 = kRule == UpdateRule::kSgd ? nullptr : job.state1 + offset;
  A* const state2 = kRule == UpdateRule::kAdam ? job.state2 + offset : nullptr;
  if constexpr (kIsShortFloat<T>) {
    float wide[kStrip<float>];
    ::raggrad::cpu::Convert<I>::WidenRow(weights, wide, columns);
    Step<I, kRule>(job, gradient, state1, state2, wide, columns);
    ::raggrad::cpu::Convert<I>::NarrowRow(wide, weights, columns);
  } else {
    Step<I, kRule>(job, gradient, state1, state2, weights, columns);
  }
}

template <Isa I, class T, UpdateRule kRule, class A>
void PrefetchForUpdate(const UpdateJob<A>& job, int64_t row, int64_t column, int64_t columns) noexcept {
  const int64_t offset = row * job.width + column;
  PrefetchRow<I>(static_cast<const T*>(job.table) + offset, columns);
  if constexpr (kRule != UpdateRule::kSgd) PrefetchRow<I>(job.state1 + offset, columns);
  if constexpr (kRule == UpdateRule::kAdam) PrefetchRow<I>(job.state2 + offset, columns);
}

template void UpdateRow<kIsa, Half, UpdateRule::kSgd>(const UpdateJob<float>&, int64_t, int64_t, int64_t,
                                                      const float*) noexcept;
template void PrefetchForUpdate<kIsa, Half, UpdateRule::kSgd>(const UpdateJob<float>&, int64_t, int64_t,
                                                              int64_t) noexcept;
template void UpdateRow<kIsa, BFloat16, UpdateRule::kSgd>(const UpdateJob<float>&, int64_t, int64_t, int64_t,
                                                          const float*) noexcept;
template void PrefetchForUpdate<kIsa, BFloat16, UpdateRule::kSgd>(const UpdateJob<float>&, int64_t, int64_t,
                                                                  int64_t) noexcept;
template void UpdateRow<kIsa, float, UpdateRule::kSgd>(const UpdateJob<float>&, int64_t, int64_t, int64_t,
                                                       const float*) noexcept;
template void PrefetchForUpdate<kIsa, float, UpdateRule::kSgd>(const UpdateJob<float>&, int64_t, int64_t,
                                                               int64_t) noexcept;
template void UpdateRow<kIsa, double, UpdateRule::kSgd>(const UpdateJob<double>&, int64_t, int64_t, int64_t,
                                                        const double*) noexcept;
template void PrefetchForUpdate<kIsa, double, UpdateRule::kSgd>(const UpdateJob<double>&, int64_t, int64_t,
                                                                int64_t) noexcept;
template void UpdateRow<kIsa, Half, UpdateRule::kAdagrad>(const UpdateJob<float>&, int64_t, int64_t, int64_t,
                                                          const float*) noexcept;
template void PrefetchForUpdate<kIsa, Half, UpdateRule::kAdagrad>(const UpdateJob<float>&, int64_t, int64_t,
                                                                  int64_t) noexcept;
template void UpdateRow<kIsa, BFloat16, UpdateRule::kAdagrad>(const UpdateJob<float>&, int64_t, int64_t, int64_t,
                                                              const float*) noexcept;
template void PrefetchForUpdate<kIsa, BFloat16, UpdateRule::kAdagrad>(const UpdateJob<float>&, int64_t, int64_t,
                                                                      int64_t) noexcept;
template void UpdateRow<kIsa, float, UpdateRule::kAdagrad>(const UpdateJob<float>&, int64_t, int64_t, int64_t,
                                                           const float*) noexcept;
template void PrefetchForUpdate<kIsa, float, UpdateRule::kAdagrad>(const UpdateJob<float>&, int64_t, int64_t,
                                                                   int64_t) noexcept;
template void UpdateRow<kIsa, double, UpdateRule::kAdagrad>(const UpdateJob<double>&, int64_t, int64_t, int64_t,
                                                            const double*) noexcept;
template void PrefetchForUpdate<kIsa, double, UpdateRule::kAdagrad>(const UpdateJob<double>&, int64_t, int64_t,
                                                                    int64_t) noexcept;
template void UpdateRow<kIsa, Half, UpdateRule::kAdam>(const UpdateJob<float>&, int64_t, int64_t, int64_t,
                                                       const float*) noexcept;
template void PrefetchForUpdate<kIsa, Half, UpdateRule::kAdam>(const UpdateJob<float>&, int64_t, int64_t,
                                                               int64_t) noexcept;
template void UpdateRow<kIsa, BFloat16, UpdateRule::kAdam>(const UpdateJob<float>&, int64_t, int64_t, int64_t,
                                                           const float*) noexcept;
template void PrefetchForUpdate<kIsa, BFloat16, UpdateRule::kAdam>(const UpdateJob<float>&, int64_t, int64_t,
                                                                   int64_t) noexcept;
template void UpdateRow<kIsa, float, UpdateRule::kAdam>(const UpdateJob<float>&, int64_t, int64_t, int64_t,
                                                        const float*) noexcept;
template void PrefetchForUpdate<kIsa, float, UpdateRule::kAdam>(const UpdateJob<float>&, int64_t, int64_t,
                                                                int64_t) noexcept;
template void UpdateRow<kIsa, double, UpdateRule::kAdam>(const UpdateJob<double>&, int64_t, int64_t, int64_t,
                                                         const double*) noexcept;
template void PrefetchForUpdate<kIsa, double, UpdateRule::kAdam>(const UpdateJob<double>&, int64_t, int64_t,
                                                                 int64_t) noexcept;

}  // namespace raggrad::sparse_segment
