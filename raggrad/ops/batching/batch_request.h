// What a Batch call brings, read and checked before it meets others. Internal to the family.
#pragma once

#include <vector>

#include "raggrad/ops/batching/batching.h"

namespace raggrad::batching {

struct BatchRequest {
  std::vector<SharedView> tensors = {};
  int64_t rows = 0;
  int64_t bytes = 0;
};

// Checks that concern the call alone, in TensorFlow's order. Copies what nothing keeps alive, unless the caller is
// `blocked` until the result is there.
Result<BatchRequest> CheckBatch(const Context& ctx, const BatchCall& call, bool blocked) noexcept;

// What a call without rows gets: everything, the id too, has shape [0].
Result<BatchOutput> NoRowsOutput(const Context& ctx, const BatchRequest& request) noexcept;

// Checks that concern the resource: only the call that makes it is looked at.
Status CheckBatchOptions(const BatchCall& call) noexcept;

// Moves the three parts into an output, or says which could not be made.
Result<BatchOutput> AssembleOutput(std::vector<Tensor> tensors, Result<Tensor> index, Result<Tensor> id) noexcept;

}  // namespace raggrad::batching
