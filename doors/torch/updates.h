// Operators of torch.ops.raggrad that change rows of a table in place: one step of an optimizer. operators.cc has their
// schemas, raggrad/ops/sparse_segment/row_update.h the formulas.
//
// `rows` may repeat and come in any order; the values of one row are added up first.
#pragma once

#include <optional>
#include <string>

#include "adapter.h"

namespace raggrad::torch_door {

void SgdRows(const TorchTensor& table, const TorchTensor& values, const TorchTensor& rows, double learning_rate,
             const std::optional<std::string>& accumulation);
void AdagradRows(const TorchTensor& table, const TorchTensor& accumulator, const TorchTensor& values,
                 const TorchTensor& rows, double learning_rate, double epsilon,
                 const std::optional<std::string>& accumulation);
void AdamRows(const TorchTensor& table, const TorchTensor& m, const TorchTensor& v, const TorchTensor& values,
              const TorchTensor& rows, double learning_rate, double beta1, double beta2, double epsilon, int64_t step,
              const std::optional<std::string>& accumulation);

}  // namespace raggrad::torch_door
