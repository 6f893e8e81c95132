// Operators of torch.ops.raggrad on rows with ids: slices of a gradient, updates of a table. operators.cc has their
// schemas.
#pragma once

#include <optional>
#include <string>
#include <tuple>

#include "adapter.h"

namespace raggrad::torch_door {

std::tuple<TorchTensor, TorchTensor> CoalesceRows(const TorchTensor& values, const TorchTensor& rows,
                                                  int64_t table_rows, const std::optional<std::string>& accumulation);
// A copy of `input` with alpha * source[i] added to row index[i], for every i.
TorchTensor IndexAdd(const TorchTensor& input, const TorchTensor& source, const TorchTensor& index, double alpha,
                     const std::optional<std::string>& accumulation);
// Whether every id is larger than the one before, as a tensor of one element.
TorchTensor Ascends(const TorchTensor& ids);

}  // namespace raggrad::torch_door
