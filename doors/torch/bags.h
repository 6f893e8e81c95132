// Bags of ids, as EmbeddingBag has them, become ids with segment ids, as the engine has them. Host memory only.
#pragma once

#include <optional>

#include "raggrad/core/context.h"
#include "raggrad/core/scratch.h"

namespace raggrad::torch_door {

struct Bags {
  TensorView ids;  // without the padding
  TensorView segment_ids;
  std::optional<TensorView> weights;  // of these ids
  int64_t count = 0;
  int64_t ids_with_padding = 0;

  // Memory of the views above. Ids and weights are the caller's if there is no padding.
  Scratch<int32_t> kept_segment_ids;
  Scratch<char> kept_ids;
  Scratch<char> kept_weights;
};

// Bag b has the ids from offsets[b] on, up to the next offset or the end. With include_last_offset, the last offset is
// no bag but an end. Takes 4 bytes per id, and the bytes of an id and its weight more if there is padding. One pass
// over the ids, two with padding.
//
//   ids      [n]     int32 or int64
//   offsets  [bags]  int32 or int64, ascending from 0, at most n
//   weights  [n]     any type
struct BagOperands {
  TensorView ids;
  TensorView offsets;
  std::optional<TensorView> weights;
  bool include_last_offset;
  std::optional<int64_t> padding_id;
};
Result<Bags> CutIntoBags(const BagOperands& operands, const Context& ctx) noexcept;

}  // namespace raggrad::torch_door
