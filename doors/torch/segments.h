// Operators of torch.ops.raggrad on segments. operators.cc has their schemas.
#pragma once

#include <string>

#include "pooling.h"

namespace raggrad::torch_door {

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

}  // namespace raggrad::torch_door
