// Brings ids into the order of their segments, for operators that need it, and leaves out ids that are out of range.
// Operands are in host memory, except those of the last function.
// Internal to the library, and exported for its doors and bindings.
#pragma once

#include <optional>

#include "raggrad/core/context.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor.h"
#include "raggrad/core/tensor_view.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

#pragma GCC visibility push(default)
namespace raggrad {

// Where ids lie, and the segments they name.
struct SegmentOrder {
  Tensor positions;    // [kept], int32; int64 if there are 2^31 ids or more
  Tensor segment_ids;  // [kept], int32
};

enum class OutOfRange {
  kError,  // INVALID_ARGUMENT names the first id that is out of range
  kDrop,   // they are left out, negative ones too
};

// The positions of all ids, ordered by segment; those of one segment ascend. Nothing if the ids come in order and none
// is left out: one pass over them, and no memory.
//
//   segment_ids   [n]  int32 or int64, in [0, num_segments), any order; n < 2^32
//   num_segments       in [0, 2^31)
//
// The result takes 8 bytes per id, and a stable radix sort 16 more meanwhile, or none if only ids were left out.
Result<std::optional<SegmentOrder>> OrderBySegment(const TensorView& segment_ids, int64_t num_segments,
                                                   OutOfRange out_of_range, const Context& ctx = {}) noexcept;

// The positions of the ids in range, ascending. Nothing if all are in range. Takes no memory but the result's.
Result<std::optional<SegmentOrder>> KeepInRange(const TensorView& segment_ids, int64_t num_segments,
                                                const Context& ctx = {}) noexcept;

// out[i] = values[positions[i]], for a vector of any type but strings. `values` has all of these positions.
Result<Tensor> TakeAt(const TensorView& values, const TensorView& positions, const Context& ctx = {}) noexcept;

// SparseSegmentGradV2Padded of the ids whose segments are in range, in device memory. The others may name any row. Ids
// are dropped while they are sorted, which costs nothing. UNIMPLEMENTED in host memory, where KeepInRange does it, and
// for WeightDivisor::kWeights.
Result<SparseSegmentGradV2PaddedOutput> SparseSegmentGradV2PaddedInRange(
    const SegmentPooling& pooling, const TensorView& grad, const TensorView& indices, const TensorView& segment_ids,
    const TensorView& dense_output_dim0, int64_t max_unique, const Context& ctx = {}) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
