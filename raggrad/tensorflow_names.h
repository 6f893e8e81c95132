// TensorFlow's names of the sparse segment operators: one function for each, where sparse_segment.h has one function
// with a combiner. TensorFlow's attribute sparse_gradient has no influence on a forward.
//
// The other operators have TensorFlow's names in their own headers.
#pragma once

#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad {

inline auto SparseSegmentSumGradV2(const TensorView& grad, const TensorView& indices, const TensorView& segment_ids,
                                   const TensorView& dense_output_dim0, const Context& ctx = {}) noexcept {
  return SparseSegmentGradV2(SegmentCombiner::kSum, grad, indices, segment_ids, dense_output_dim0, ctx);
}
inline auto SparseSegmentMeanGradV2(const TensorView& grad, const TensorView& indices, const TensorView& segment_ids,
                                    const TensorView& dense_output_dim0, const Context& ctx = {}) noexcept {
  return SparseSegmentGradV2(SegmentCombiner::kMean, grad, indices, segment_ids, dense_output_dim0, ctx);
}
inline auto SparseSegmentSqrtNGradV2(const TensorView& grad, const TensorView& indices, const TensorView& segment_ids,
                                     const TensorView& dense_output_dim0, const Context& ctx = {}) noexcept {
  return SparseSegmentGradV2(SegmentCombiner::kSqrtN, grad, indices, segment_ids, dense_output_dim0, ctx);
}
inline auto SparseSegmentSumGrad(const TensorView& grad, const TensorView& indices, const TensorView& segment_ids,
                                 const TensorView& output_dim0, const Context& ctx = {}) noexcept {
  return SparseSegmentGrad(SegmentCombiner::kSum, grad, indices, segment_ids, output_dim0, ctx);
}
inline auto SparseSegmentMeanGrad(const TensorView& grad, const TensorView& indices, const TensorView& segment_ids,
                                  const TensorView& output_dim0, const Context& ctx = {}) noexcept {
  return SparseSegmentGrad(SegmentCombiner::kMean, grad, indices, segment_ids, output_dim0, ctx);
}
inline auto SparseSegmentSqrtNGrad(const TensorView& grad, const TensorView& indices, const TensorView& segment_ids,
                                   const TensorView& output_dim0, const Context& ctx = {}) noexcept {
  return SparseSegmentGrad(SegmentCombiner::kSqrtN, grad, indices, segment_ids, output_dim0, ctx);
}

inline auto SparseSegmentSum(const TensorView& data, const TensorView& indices, const TensorView& segment_ids,
                             const Context& ctx = {}) noexcept {
  return SparseSegment(SegmentCombiner::kSum, data, indices, segment_ids, ctx);
}
inline auto SparseSegmentMean(const TensorView& data, const TensorView& indices, const TensorView& segment_ids,
                              const Context& ctx = {}) noexcept {
  return SparseSegment(SegmentCombiner::kMean, data, indices, segment_ids, ctx);
}
inline auto SparseSegmentSqrtN(const TensorView& data, const TensorView& indices, const TensorView& segment_ids,
                               const Context& ctx = {}) noexcept {
  return SparseSegment(SegmentCombiner::kSqrtN, data, indices, segment_ids, ctx);
}
inline auto SparseSegmentSumWithNumSegments(const TensorView& data, const TensorView& indices,
                                            const TensorView& segment_ids, const TensorView& num_segments,
                                            const Context& ctx = {}) noexcept {
  return SparseSegmentWithNumSegments(SegmentCombiner::kSum, data, indices, segment_ids, num_segments, ctx);
}
inline auto SparseSegmentMeanWithNumSegments(const TensorView& data, const TensorView& indices,
                                             const TensorView& segment_ids, const TensorView& num_segments,
                                             const Context& ctx = {}) noexcept {
  return SparseSegmentWithNumSegments(SegmentCombiner::kMean, data, indices, segment_ids, num_segments, ctx);
}
inline auto SparseSegmentSqrtNWithNumSegments(const TensorView& data, const TensorView& indices,
                                              const TensorView& segment_ids, const TensorView& num_segments,
                                              const Context& ctx = {}) noexcept {
  return SparseSegmentWithNumSegments(SegmentCombiner::kSqrtN, data, indices, segment_ids, num_segments, ctx);
}

}  // namespace raggrad
