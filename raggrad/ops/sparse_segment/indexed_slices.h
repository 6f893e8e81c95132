// IndexedSlices: a gradient with only some rows of a table, and functions that densify, coalesce and apply it.
//
//   Result<SparseSegmentGradV2Output> grad = SparseSegmentMeanGradV2(...);
//   Status s = ApplyRows({grad->output.view(), grad->sorted_unique_indices.view(), table_rows}, Sgd{0.1}, table);
//
// or in one pass over the sorted ids, without storing the gradient (the same bits):
//
//   Status s = SparseSegmentGradApply(SegmentCombiner::kMean, d_pooled, indices, segment_ids, Sgd{0.1}, table);
//
// Indices may repeat and come in any order. Slices of one row are first added in the order of the input (in float32 for
// half and bfloat16, rounded once), or as Context::accumulation says. Everything here is deterministic for any number
// of threads, and checks all ids before it changes anything. README.md beside this file has the errors.
//
// Shapes and types:
//   values   [n, inner...]           half, bfloat16, float32, float64
//   indices  [n]                     int32 or int64, in [0, table_rows)
//   table    [table_rows, inner...]  half, bfloat16 or float32; float64 if the values are. Must not overlap with the
//                                    states or with anything that is read.
//
// Memory beyond the outputs: that of SparseSegmentSumGradV2 or -MeanGradV2 for the same ids; nothing per table row.
#pragma once

#include "raggrad/ops/padded.h"
#include "raggrad/ops/sparse_segment/row_update.h"
#include "raggrad/ops/sparse_segment/segment_plan.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

#pragma GCC visibility push(default)
namespace raggrad {

struct IndexedSlicesView {
  TensorView values;
  TensorView indices;
  int64_t table_rows;  // of the dense array; in [0, 2^32]
  // The caller knows that indices ascend and none repeats, as those of Coalesce do. On a GPU ApplyRows then neither
  // sorts nor waits, and skips indices that are out of range. Elsewhere it makes no difference.
  bool coalesced = false;
};

struct IndexedSlices {
  Tensor values;
  Tensor indices;
  int64_t table_rows = 0;

  IndexedSlicesView view() const noexcept { return {values.view(), indices.view(), table_rows}; }
};

// SparseSegmentGradV2 for tables of up to 2^32 rows, with table_rows as a number. The same bits.
Result<IndexedSlices> SparseSegmentGradSlices(const SegmentPooling& pooling, const TensorView& grad,
                                              const TensorView& indices, const TensorView& segment_ids,
                                              int64_t table_rows, const Context& ctx = {}) noexcept;

// out: [table_rows, inner...]; +0 where there is no slice.
Result<Tensor> ToDense(const IndexedSlicesView& slices, const Context& ctx = {}) noexcept;

// Adds up the slices of each row: every index once, ascending.
Result<IndexedSlices> Coalesce(const IndexedSlicesView& slices, const Context& ctx = {}) noexcept;

// Coalesce with room for max_unique rows (ops/padded.h): never waits for a GPU, and can be captured. int32 indices
// cannot name row table_rows, which padding does, of more than 2^31 - 1 rows: INVALID_ARGUMENT.
struct CoalescePaddedOutput {
  Tensor values;   // [max_unique, inner...]: the rows, then rows of +0
  Tensor indices;  // [max_unique]: their indices, ascending, then table_rows
  Tensor report;   // [6] uint64
  int64_t table_rows = 0;
};

Result<CoalescePaddedOutput> CoalescePadded(const IndexedSlicesView& slices, int64_t max_unique,
                                            const Context& ctx = {}) noexcept;

// One optimizer step on the rows of the table that the slices name.
Status ApplyRows(const IndexedSlicesView& slices, const RowUpdate& update, const MutableTensorView& table,
                 const Context& ctx = {}) noexcept;

// SparseSegment...GradV2 and ApplyRows in one pass, with the bits of one after the other.
Status SparseSegmentGradApply(const SegmentPooling& pooling, const TensorView& grad, const TensorView& indices,
                              const TensorView& segment_ids, const RowUpdate& update, const MutableTensorView& table,
                              const Context& ctx = {}) noexcept;
Status SparseSegmentGradApply(const SegmentPooling& pooling, const TensorView& grad, const SegmentPlan& plan,
                              const RowUpdate& update, const MutableTensorView& table,
                              const Context& ctx = {}) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
