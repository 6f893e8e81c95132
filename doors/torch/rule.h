// The arguments of operators that describe a step of an optimizer (updates.h), for the engine.
#pragma once

#include <string>

#include "adapter.h"

namespace raggrad::torch_door {

struct Rule {
  const std::string& optimizer;
  const MaybeTensor& state1;
  const MaybeTensor& state2;
  double learning_rate;
  double epsilon;
  double beta1;
  double beta2;
  int64_t step;
  const MaybeTensor& rate;
};

RowUpdate UpdateOf(Call& call, const Rule& rule);

// The table of an operator that updates rows.
MutableTensorView TableOf(Call& call, const TorchTensor& table);

}  // namespace raggrad::torch_door

// Writes Adam's rates for a learning rate of 1, of steps 1 to `count`.
extern "C" [[gnu::visibility("default")]] void raggrad_torch_adam_rates(double beta1, double beta2, int64_t count,
                                                                        double* rates) noexcept;
