// The operands of a Batch call, checked before the call meets others. Internal to the family.
#pragma once

#include <vector>

#include "raggrad/ops/batching/batching.h"

namespace raggrad::batching {

struct BatchRequest {
  std::vector<SharedView> tensors = {};
  int64_t rows = 0;
  int64_t bytes = 0;
};

// Checks the call by itself, in TensorFlow's order. Copies tensors without a keep-alive, unless the caller is `blocked`
// until the result is there.
Result<BatchRequest> CheckBatch(const Context& ctx, const BatchCall& call, bool blocked) noexcept;

// The result of a call without rows: every output has shape [0], the id too.
Result<BatchOutput> NoRowsOutput(const Context& ctx, const BatchRequest& request) noexcept;

// Checks the options of the resource, in the call that makes it.
Status CheckBatchOptions(const BatchCall& call) noexcept;

// Moves the three parts into an output, or returns the error of the one that could not be made.
Result<BatchOutput> AssembleOutput(std::vector<Tensor> tensors, Result<Tensor> index, Result<Tensor> id) noexcept;

}  // namespace raggrad::batching
