// The operands of an UnbatchGrad call, checked before the call meets others. Internal to the family.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "raggrad/ops/batching/batching.h"

namespace raggrad::batching {

// One row of an owner's batch_index.
struct IndexRow {
  int64_t key;
  std::optional<int64_t> rows;  // how many the piece must have, in a strict call
};

struct UnbatchGradRequest {
  int64_t id;
  bool owner;
  Status index_status = {};              // of an owner: the fault of batch_index, reported after a used id
  std::vector<IndexRow> rows = {};       // of an owner: its batch_index
  bool lists_itself = false;             // the id is among the rows
  std::optional<int64_t> repeated = {};  // a key that is listed more than once
  SharedView grad;                       // as it came: not copied yet, unless it is on a GPU
  int64_t bytes = 0;                     // of grad
  void* stream = nullptr;                // of grad, on a GPU
  Waiting waiting = {};
};

// Checks the call by itself, in TensorFlow's order. `ctx` is for the copy of a gradient in device memory.
Result<UnbatchGradRequest> CheckUnbatchGrad(const Context& ctx, const UnbatchGradCall& call) noexcept;

}  // namespace raggrad::batching
