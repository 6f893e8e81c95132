// Operators of torch.ops.raggrad on segments. operators.cc has their schemas.
#pragma once

#include <optional>
#include <string>
#include <tuple>

#include "adapter.h"

namespace raggrad::torch_door {

using MaybeText = std::optional<std::string>;
using TwoTensors = std::tuple<TorchTensor, TorchTensor>;

TorchTensor SparseSegmentForward(const TorchTensor& data, const TorchTensor& indices, const TorchTensor& segment_ids,
                                 int64_t num_segments, const std::string& combiner, const MaybeText& accumulation);
TorchTensor SparseSegmentDenseGrad(const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& segment_ids,
                                   int64_t table_rows, const std::string& combiner, const MaybeText& accumulation);
TwoTensors SparseSegmentGradRows(const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& segment_ids,
                                 int64_t table_rows, const std::string& combiner, const MaybeText& accumulation);

TorchTensor SegmentForward(const TorchTensor& data, const TorchTensor& segment_ids, int64_t num_segments,
                           const std::string& combiner, const MaybeText& accumulation);
TorchTensor SegmentGrad(const TorchTensor& grad, const TorchTensor& segment_ids, const std::string& combiner,
                        const MaybeText& accumulation);

TorchTensor EmbeddingBagForward(const TorchTensor& weight, const TorchTensor& indices, const TorchTensor& offsets,
                                const std::string& mode, bool include_last_offset, std::optional<int64_t> padding_idx,
                                bool sparse, const MaybeText& accumulation);
TorchTensor EmbeddingBagDenseGrad(const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& offsets,
                                  int64_t table_rows, const std::string& mode, bool include_last_offset,
                                  std::optional<int64_t> padding_idx, const MaybeText& accumulation);
TwoTensors EmbeddingBagGradRows(const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& offsets,
                                int64_t table_rows, const std::string& mode, bool include_last_offset,
                                std::optional<int64_t> padding_idx, const MaybeText& accumulation);
TorchTensor EmbeddingForward(const TorchTensor& weight, const TorchTensor& indices, std::optional<int64_t> padding_idx,
                             bool sparse, const MaybeText& accumulation);

}  // namespace raggrad::torch_door
