// Operators of torch.ops.raggrad for reproducible sums over processes (raggrad/ops/sparse_segment/split_sums.h), and
// the order of ids that they need. Schemas are at the end of split_sums.cc. Host memory only.
#pragma once

#include <optional>
#include <string>
#include <tuple>

#include "adapter.h"

namespace raggrad::torch_door {

TorchTensor SplitLargest(const TorchTensor& data, const TorchTensor& indices, const TorchTensor& segment_ids,
                         const std::optional<TorchTensor>& factors, int64_t num_segments);
TorchTensor SplitSums(const TorchTensor& data, const TorchTensor& indices, const TorchTensor& segment_ids,
                      const std::optional<TorchTensor>& factors, const TorchTensor& largest, const TorchTensor& counts);
// `like` has the type of the result.
TorchTensor SplitRound(const TorchTensor& sums, const TorchTensor& largest, const TorchTensor& counts,
                       const TorchTensor& like, const std::string& combiner);

// The unique ids, ascending; for every id, in the order of the ids, its position in the input and its place among the
// unique ones. Equal ids keep their order. table_rows is below 2^31.
std::tuple<TorchTensor, TorchTensor, TorchTensor> OrderIds(const TorchTensor& ids, int64_t table_rows);

}  // namespace raggrad::torch_door
