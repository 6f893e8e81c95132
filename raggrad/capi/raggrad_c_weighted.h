// Pooled rows with a weight for each id, their gradients and updates. raggrad/ops/sparse_segment/segment_pooling.h has
// the formulas, sparse_segment.h that of the weights' gradient.
//
//   rg_weighted_ids ids = RG_INIT(rg_weighted_ids);
//   ids.indices = &indices;
//   ids.segment_ids = &segment_ids;
//   ids.weights = &weights;
//   rg_weighted_segment(&context, RG_MEAN, &table, &ids, num_segments, &pooled, &error);
#pragma once

#include "raggrad/capi/raggrad_c_segment.h"

#ifdef __cplusplus
extern "C" {
#endif

// The divisor of RG_MEAN and RG_SQRTN: the sum of the weights, or the root of the sum of their squares; or the number
// of ids, or its root.
enum { RG_BY_WEIGHTS = 0, RG_BY_COUNT = 1 };

// The ids are `indices` and `segment_ids`, or those of `plan`.
typedef struct rg_weighted_ids {
  size_t struct_size;
  const rg_tensor* indices;      // [n]; null with a plan
  const rg_tensor* segment_ids;  // [n]; null with a plan
  const rg_segment_plan* plan;   // or null
  const rg_tensor* weights;      // [n], in the type of the rows or float32
  int32_t divisor;
} rg_weighted_ids;

// num_segments: rows of the output; -1: the last segment id + 1, or those of the plan.
RG_API rg_status rg_weighted_segment(const rg_context* context, int32_t combiner, const rg_tensor* data,
                                     const rg_weighted_ids* ids, int64_t num_segments, rg_output* output,
                                     rg_error* error);

// Gradients of `data`. table_rows: rows of data; with a plan, those it was made for. The first has only the rows that
// indices name, the second all rows, the third room for max_unique rows (raggrad_c_padded.h; without a plan). The last
// two count rows in int32, as TensorFlow's gradients do.
RG_API rg_status rg_weighted_segment_grad_slices(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                                 const rg_weighted_ids* ids, int64_t table_rows,
                                                 rg_output* slice_values, rg_output* slice_indices, rg_error* error);
RG_API rg_status rg_weighted_segment_grad(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                          const rg_weighted_ids* ids, int32_t table_rows, rg_output* output,
                                          rg_error* error);
RG_API rg_status rg_weighted_segment_grad_padded(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                                 const rg_weighted_ids* ids, int32_t table_rows, int64_t max_unique,
                                                 rg_output* output, rg_output* sorted_unique_indices, rg_output* report,
                                                 rg_error* error);
// The gradient and an update of the table in one pass.
RG_API rg_status rg_weighted_segment_grad_apply(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                                const rg_weighted_ids* ids, const rg_row_update* update,
                                                const rg_mutable_tensor* table, rg_error* error);

// The gradient of the weights: [n], in their type.
RG_API rg_status rg_weighted_segment_weights_grad(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                                  const rg_tensor* data, const rg_weighted_ids* ids, rg_output* output,
                                                  rg_error* error);

#ifdef __cplusplus
}  // extern "C"
#endif
