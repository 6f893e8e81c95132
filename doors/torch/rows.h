// Operators of torch.ops.raggrad on rows with ids: slices of a gradient, updates of a table. operators.cc has their
// schemas.
#pragma once

#include "adapter.h"

namespace raggrad::torch_door {

TwoTensors CoalesceRows(const TorchTensor& values, const TorchTensor& rows, int64_t table_rows,
                        const MaybeText& accumulation);
// A copy of `input` with alpha * source[i] added to row index[i], for every i.
TorchTensor IndexAdd(const TorchTensor& input, const TorchTensor& source, const TorchTensor& index, double alpha,
                     const MaybeText& accumulation);
// Whether every id is larger than the one before, as a tensor of one element.
TorchTensor Ascends(const TorchTensor& ids);

}  // namespace raggrad::torch_door
