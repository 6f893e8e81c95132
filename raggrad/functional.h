// The operators by the names people expect: gradients of tables as IndexedSlices, sizes as numbers. Thin: the kernels,
// the checks and the bits are those of the operators under TensorFlow's names, which say more about each.
//
//   Result<Tensor> pooled = SegmentMean(table, indices, segment_ids);
//   Result<IndexedSlices> grad = SegmentMeanGrad(d_pooled, indices, segment_ids, rows);
//   Status status = ApplyRows(grad->view(), Sgd{0.1}, mutable_table);
#pragma once

#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"
#include "raggrad/ops/sparse_segment/indexed_slices.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"
#include "raggrad/ops/sparse_slice/sparse_slice.h"

namespace raggrad {

inline Result<Tensor> SegmentSum(const TensorView& data, const TensorView& indices, const TensorView& segment_ids,
                                 const Context& ctx = {}) noexcept {
  return SparseSegment(SegmentCombiner::kSum, data, indices, segment_ids, ctx);
}
inline Result<Tensor> SegmentMean(const TensorView& data, const TensorView& indices, const TensorView& segment_ids,
                                  const Context& ctx = {}) noexcept {
  return SparseSegment(SegmentCombiner::kMean, data, indices, segment_ids, ctx);
}
inline Result<Tensor> SegmentSqrtN(const TensorView& data, const TensorView& indices, const TensorView& segment_ids,
                                   const Context& ctx = {}) noexcept {
  return SparseSegment(SegmentCombiner::kSqrtN, data, indices, segment_ids, ctx);
}

// rows: of the table, in [0, 2^32].
inline Result<IndexedSlices> SegmentSumGrad(const TensorView& grad, const TensorView& indices,
                                            const TensorView& segment_ids, int64_t rows,
                                            const Context& ctx = {}) noexcept {
  return SegmentGrad(SegmentCombiner::kSum, grad, indices, segment_ids, rows, ctx);
}
inline Result<IndexedSlices> SegmentMeanGrad(const TensorView& grad, const TensorView& indices,
                                             const TensorView& segment_ids, int64_t rows,
                                             const Context& ctx = {}) noexcept {
  return SegmentGrad(SegmentCombiner::kMean, grad, indices, segment_ids, rows, ctx);
}
inline Result<IndexedSlices> SegmentSqrtNGrad(const TensorView& grad, const TensorView& indices,
                                              const TensorView& segment_ids, int64_t rows,
                                              const Context& ctx = {}) noexcept {
  return SegmentGrad(SegmentCombiner::kSqrtN, grad, indices, segment_ids, rows, ctx);
}

inline Result<SparseFillEmptyRowsOutput> FillEmptyRows(const TensorView& indices, const TensorView& values,
                                                       const TensorView& dense_shape, const TensorView& default_value,
                                                       const Context& ctx = {}) noexcept {
  return SparseFillEmptyRows(indices, values, dense_shape, default_value, ctx);
}
inline Result<FillEmptyRowsGradOutput> FillEmptyRowsGrad(const TensorView& reverse_index_map,
                                                         const TensorView& grad_values,
                                                         const Context& ctx = {}) noexcept {
  return SparseFillEmptyRowsGrad(reverse_index_map, grad_values, ctx);
}

inline Result<SparseSliceOutput> Slice(const TensorView& indices, const TensorView& values, const TensorView& shape,
                                       const TensorView& start, const TensorView& size,
                                       const Context& ctx = {}) noexcept {
  return SparseSlice(indices, values, shape, start, size, ctx);
}
inline Result<Tensor> SliceGrad(const TensorView& grad, const TensorView& input_indices, const TensorView& input_start,
                                const TensorView& output_indices, const Context& ctx = {}) noexcept {
  return SparseSliceGrad(grad, input_indices, input_start, output_indices, ctx);
}

}  // namespace raggrad
