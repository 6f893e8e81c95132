// What an UnbatchGrad call brings, read and checked before it meets others. Internal to the family.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "raggrad/ops/batching/batching.h"

namespace raggrad::batching {

// One row of an owner's batch_index.
struct IndexRow {
  int64_t key;
  std::optional<int64_t> rows;  // of a strict call: what the piece must have
};

struct UnbatchGradRequest {
  int64_t id;
  bool owner;
  Status index_status = {};              // of an owner: what is wrong with batch_index; a used id is reported before it
  std::vector<IndexRow> rows = {};       // of an owner: its batch, in order
  bool lists_itself = false;             // the id is among the rows
  std::optional<int64_t> repeated = {};  // a key that is listed more than once
  SharedView grad;                       // not kept alive by the library yet
  int64_t bytes = 0;                     // in it
  void* stream = nullptr;                // of it, on a GPU
  Waiting waiting = {};
};

// Checks that concern the call alone, in TensorFlow's order. `ctx`: for the copy of a piece in device memory.
Result<UnbatchGradRequest> CheckUnbatchGrad(const Context& ctx, const UnbatchGradCall& call) noexcept;

}  // namespace raggrad::batching
