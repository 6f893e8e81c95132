// One optimizer step on a strip of a table row: the end of the row loop of an update. Compiled once per
// instruction-set level (cpu/isa_choice.h).
#pragma once

#include <cstdint>

#include "raggrad/core/isa.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/cpu/isa_choice.h"

namespace raggrad::sparse_segment {

enum class Optimizer { kSgd, kAdagrad, kAdam };
inline constexpr int kOptimizers = 3;

// A: float or double, the type of sums and states. row_update.h has the formulas.
template <class A>
struct OptimizerJob {
  void* table;  // [table_rows, width]
  int64_t width;
  A rate;
  const double* rate_on_device;  // takes the place of rate; null: there is none
  A epsilon;
  A gain1;    // 1 - beta1
  A gain2;    // 1 - beta2
  A* state1;  // Adagrad's sums, Adam's m; RowwiseAdagrad's, one for each row
  A* state2;  // Adam's v
  void (*step)(const OptimizerJob& job, int64_t row, int64_t column, int64_t columns, const A* gradient) noexcept;
  void (*prefetch)(const OptimizerJob& job, int64_t row, int64_t column, int64_t columns) noexcept;
};

// The functions for a table of type T, by optimizer. They run in the caller's floating-point environment.
template <class T>
struct OptimizerStepsOf {
  decltype(OptimizerJob<SumType<T>>::step) step[kOptimizers];
  decltype(OptimizerJob<SumType<T>>::prefetch) prefetch[kOptimizers];
};

using OptimizerSteps = cpu::PerType<OptimizerStepsOf, FloatTypes>;

template <Isa I>
const OptimizerSteps& OptimizerStepsFor() noexcept;

}  // namespace raggrad::sparse_segment
