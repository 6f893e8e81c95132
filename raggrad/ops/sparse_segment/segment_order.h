// Segment ids in any order, for operators that need them ordered, and for those that leave out ids that are out of
// range. Operands are in host memory where nothing else is said.
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

// The segment of each row of an array, or of each index into one.
struct Segments {
  TensorView ids;  // [n]  int32 or int64, any order; n < 2^32
  int64_t count;   // of segments, in [0, 2^31)
  OutOfRange out_of_range = OutOfRange::kError;
  // Whether the caller knows that ids ascend, those out of range included. With kDrop it saves a sort on a GPU. If it
  // is not true, rows are added to other segments than their own there.
  bool ascending = false;
};

// Row s of the result is the sum, mean or sum over square root of data[i] over all i with ids[i] == s, in the order of
// SparseSegmentSum, as if the rows had been sorted by segment, stably. In host or device memory, with the same bits.
//
// Rows are read where they lie. Takes 4 bytes per id in host memory, 24 if ids are not in order, and on a GPU 16 (none
// if they are known to ascend) and 8 per segment. On a GPU kDrop never waits and can be captured, and kError waits for
// the check of the ids only, which is made first.
Result<Tensor> PoolSegments(SegmentCombiner combiner, const TensorView& data, const Segments& segments,
                            const Context& ctx = {}) noexcept;

// The same for data[indices[i]], with or without a weight for each i: SparseSegment as if ids had been sorted first. An
// index whose segment is left out may be anything; other ones out of range are errors, for which the call waits on a
// GPU. There Mean and SqrtN do not divide by weights (UNIMPLEMENTED). `ascending` changes nothing.
//
// Takes up to 28 bytes per id in host memory, none if segments are in order; on a GPU 16, with weights 28.
Result<Tensor> PoolSegments(const SegmentPooling& pooling, const TensorView& data, const TensorView& indices,
                            const Segments& segments, const Context& ctx = {}) noexcept;

// The error for the first index that is out of range although its segment is in range; OK if there is none. All
// operands are in host memory.
Status CheckIndices(const TensorView& indices, const Segments& segments, int64_t table_rows) noexcept;

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
