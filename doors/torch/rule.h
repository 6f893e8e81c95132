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
};

RowUpdate UpdateOf(Call& call, const Rule& rule);

// The table of an operator that updates rows.
MutableTensorView TableOf(Call& call, const TorchTensor& table);

}  // namespace raggrad::torch_door
