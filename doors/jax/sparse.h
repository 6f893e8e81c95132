// Entries of sparse arrays. Results have room for as many entries as Python says (ops/padded.h). Indices are pairs of
// int32 (Call::WideView).
#pragma once

#include "adapter.h"

namespace raggrad::jax_door {

// indices, values, default_value -> indices, values, empty_rows, places, report. In host memory there may be one more
// argument, which says how many entries there are; those behind them are padding, and their place is behind all others.
Status FillEmptyRows(Call& call);
// places, grad -> d_values, d_default_value
Status FillEmptyRowsGrad(Call& call);
// indices, values -> indices, values, report
Status Slice(Call& call);

}  // namespace raggrad::jax_door
