// Operators of torch.ops.raggrad on the entries of sparse tensors. operators.cc has their schemas.
#pragma once

#include <tuple>
#include <vector>

#include "adapter.h"

namespace raggrad::torch_door {

using FourTensors = std::tuple<TorchTensor, TorchTensor, TorchTensor, TorchTensor>;

// The entries (values, indices), which rows were empty, and the place of every entry of the input in the output.
FourTensors FillEmptyRows(const TorchTensor& values, const TorchTensor& default_value, const TorchTensor& indices,
                          const std::vector<int64_t>& shape);
TwoTensors FillEmptyRowsGrad(const TorchTensor& grad, const TorchTensor& places, const MaybeText& accumulation);

TwoTensors SparseSliceForward(const TorchTensor& values, const TorchTensor& indices, const std::vector<int64_t>& shape,
                              const std::vector<int64_t>& start, const std::vector<int64_t>& size);
// `shape` and `size` are for the second derivative.
TorchTensor SparseSliceBackward(const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& output_indices,
                                const std::vector<int64_t>& shape, const std::vector<int64_t>& start,
                                const std::vector<int64_t>& size);

}  // namespace raggrad::torch_door
