// Bags of ids, as PyTorch's EmbeddingBag has them, become ids with segment ids, as the segment operators have them.
// Internal to the library and its doors.
#pragma once

#include <cstdint>
#include <optional>

#include "raggrad/core/context.h"
#include "raggrad/core/scratch.h"
#include "raggrad/core/tensor.h"

#pragma GCC visibility push(default)
namespace raggrad {

// Bag b has the ids from offsets[b] on, up to the next offset or the end. With include_last_offset, the last offset
// begins no bag: it is the end of the last one.
struct BagOperands {
  TensorView ids;                          // [n]     int32 or int64
  TensorView offsets;                      // [bags]  int32 or int64, ascending from 0, at most n
  std::optional<TensorView> weights = {};  // [n]     any type of numbers
  bool include_last_offset = false;
  std::optional<int64_t> padding_id = {};  // ids that equal it are left out
};

struct Bags {
  TensorView ids;          // without the padding
  TensorView segment_ids;  // of these ids: the numbers of their bags, ascending
  std::optional<TensorView> weights;
  // The places that these ids have among all: int32, ascending. Unset if no id was left out.
  std::optional<TensorView> positions;
  int64_t count = 0;  // of bags

  // Memory of the views above. Ids and weights are the caller's if no id was left out.
  Scratch<int32_t> segment_memory;
  Scratch<int32_t> position_memory;
  Scratch<char> id_memory;
  Scratch<char> weight_memory;
};

// Takes 4 bytes per id, and with padding 4 more and the bytes of an id and its weight. One pass over the ids, two with
// padding.
//
// On a GPU, padding_id and include_last_offset wait for the stream, because the number of ids depends on them; other
// calls do not wait and can be captured in a graph. Offsets that do not ascend from 0 to at most n then make
// segment_ids[0] -1, which all segment operators refuse; CheckOffsets says what was wrong.
Result<Bags> CutIntoBags(const BagOperands& operands, const Context& ctx = {}) noexcept;

// Checks types and shapes.
Status CheckBags(const BagOperands& operands) noexcept;

// The error of CutIntoBags for bad offsets. Waits for the stream if they are in device memory.
Status CheckOffsets(const BagOperands& operands, const Context& ctx = {}) noexcept;

// values[i] at the place that id i of the bags has among all `n` ids, 0 at the others. Only for bags with positions.
Result<Tensor> SpreadOverPositions(const Bags& bags, const TensorView& values, int64_t n,
                                   const Context& ctx = {}) noexcept;

// 0, 1, 2, ... in memory of `device`, which is that of the call's operands; count < 2^31. As segment ids they put every
// id into a bag of its own.
Result<Scratch<int32_t>> Places(Device device, int64_t count, const Context& ctx = {}) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
