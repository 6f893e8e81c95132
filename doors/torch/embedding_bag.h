// Operators of torch.ops.raggrad for EmbeddingBag and Embedding. operators.cc has their schemas.
//
// Weights belong to ids. Means and square roots divide by numbers of ids, as in torch, so the pooled rows are linear in
// the table and in the weights, and the derivatives of these operators are these operators.
#pragma once

#include <optional>
#include <string>

#include "pooling.h"

namespace raggrad::torch_door {

TorchTensor EmbeddingBagForward(const TorchTensor& weight, const TorchTensor& indices, const TorchTensor& offsets,
                                const MaybeTensor& per_sample_weights, const std::string& mode,
                                bool include_last_offset, std::optional<int64_t> padding_idx, bool sparse,
                                const MaybeText& accumulation);
TorchTensor EmbeddingBagDenseGrad(const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& offsets,
                                  const MaybeTensor& per_sample_weights, int64_t table_rows, const std::string& mode,
                                  bool include_last_offset, std::optional<int64_t> padding_idx,
                                  const MaybeText& accumulation);
TwoTensors EmbeddingBagGradRows(const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& offsets,
                                const MaybeTensor& per_sample_weights, int64_t table_rows, const std::string& mode,
                                bool include_last_offset, std::optional<int64_t> padding_idx,
                                const MaybeText& accumulation);
// The gradient of the weights: for every id the product of its row and its bag's gradient. Zero for padding.
TorchTensor EmbeddingBagWeightsGrad(const TorchTensor& grad, const TorchTensor& weight, const TorchTensor& indices,
                                    const TorchTensor& offsets, const std::string& mode, bool include_last_offset,
                                    std::optional<int64_t> padding_idx);

TorchTensor EmbeddingForward(const TorchTensor& weight, const TorchTensor& indices, std::optional<int64_t> padding_idx,
                             bool sparse, const MaybeText& accumulation);

}  // namespace raggrad::torch_door
