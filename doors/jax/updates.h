// Optimizer steps on rows of a table. Host memory only: on a GPU they are XLA's.
#pragma once

#include "adapter.h"

namespace raggrad::jax_door {

// table, values, ids, count, learning_rate, states... -> table, states...
//
// The first `count` rows are used. `learning_rate` is a number, or has no elements: then the attribute is used, which
// has all the digits of Python's. Results share the memory of their arguments.
Status ApplySgd(Call& call);
Status ApplyAdagrad(Call& call);  // states: accumulator
Status ApplyAdam(Call& call);     // states: m, v, step (how many there were before; it is not a result)

}  // namespace raggrad::jax_door
