// Pooled rows of a table, their gradients, and optimizers that apply these. The headers in raggrad/ops/sparse_segment
// specify them: sparse_segment.h, segment_plan.h, indexed_slices.h, row_update.h.
#pragma once

#include "raggrad/capi/raggrad_c_base.h"

#ifdef __cplusplus
extern "C" {
#endif

// How rows are pooled.
enum { RG_SUM = 0, RG_MEAN = 1, RG_SQRTN = 2 };

// ---- SparseSegment{Sum,Mean,SqrtN}GradV2 and ...Grad ----

RG_API rg_status rg_sparse_segment_grad_v2(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                           const rg_tensor* indices, const rg_tensor* segment_ids,
                                           const rg_tensor* dense_output_dim0, rg_output* output,
                                           rg_output* sorted_unique_indices, rg_error* error);
RG_API rg_status rg_sparse_segment_grad(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                        const rg_tensor* indices, const rg_tensor* segment_ids,
                                        const rg_tensor* output_dim0, rg_output* output, rg_error* error);

// ---- SparseSegment{Sum,Mean,SqrtN} and ...WithNumSegments ----

RG_API rg_status rg_sparse_segment(const rg_context* context, int32_t combiner, const rg_tensor* data,
                                   const rg_tensor* indices, const rg_tensor* segment_ids, rg_output* output,
                                   rg_error* error);
RG_API rg_status rg_sparse_segment_with_num_segments(const rg_context* context, int32_t combiner, const rg_tensor* data,
                                                     const rg_tensor* indices, const rg_tensor* segment_ids,
                                                     const rg_tensor* num_segments, rg_output* output, rg_error* error);

// ---- plans: ids that are checked, sorted and counted once, for any number of calls ----

// Lies on the device of its ids. May be used from several threads at a time.
typedef struct rg_segment_plan rg_segment_plan;

typedef struct rg_segment_plan_sizes {
  size_t struct_size;
  int64_t num_ids;
  int64_t num_unique;  // rows that a gradient has
  int64_t table_rows;
  int64_t num_segments;
  int32_t ascending;  // 0 or 1: whether the segment ids ascend, as a forward needs
} rg_segment_plan_sizes;

// The context's callbacks may be called until the plan is destroyed. On a GPU it waits until the ids are checked.
RG_API rg_status rg_segment_plan_make(const rg_context* context, const rg_tensor* indices, const rg_tensor* segment_ids,
                                      int64_t table_rows, int64_t num_segments, rg_segment_plan** plan,
                                      rg_error* error);
// No call may be using the plan; work that calls have queued on streams may. Null is fine.
RG_API void rg_segment_plan_destroy(rg_segment_plan* plan);
RG_API rg_status rg_segment_plan_get_sizes(const rg_segment_plan* plan, rg_segment_plan_sizes* sizes, rg_error* error);
// RG_INVALID_ARGUMENT unless the plan was made from these ids, in this order.
RG_API rg_status rg_segment_plan_check_made_from(const rg_context* context, const rg_segment_plan* plan,
                                                 const rg_tensor* indices, const rg_tensor* segment_ids,
                                                 rg_error* error);

// The same bits as without a plan.
RG_API rg_status rg_sparse_segment_grad_v2_with_plan(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                                     const rg_segment_plan* plan, rg_output* output,
                                                     rg_output* sorted_unique_indices, rg_error* error);
RG_API rg_status rg_sparse_segment_grad_with_plan(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                                  const rg_segment_plan* plan, rg_output* output, rg_error* error);
RG_API rg_status rg_sparse_segment_with_plan(const rg_context* context, int32_t combiner, const rg_tensor* data,
                                             const rg_segment_plan* plan, rg_output* output, rg_error* error);

// ---- gradients with only some rows of a table ----

// Indices may repeat and come in any order.
typedef struct rg_indexed_slices {
  size_t struct_size;
  const rg_tensor* values;   // [n, inner...]
  const rg_tensor* indices;  // [n]
  int64_t table_rows;        // of the dense array
} rg_indexed_slices;

// GradV2 for tables of up to 2^32 rows, with table_rows as a number.
RG_API rg_status rg_sparse_segment_grad_slices(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                               const rg_tensor* indices, const rg_tensor* segment_ids,
                                               int64_t table_rows, rg_output* slice_values, rg_output* slice_indices,
                                               rg_error* error);
RG_API rg_status rg_indexed_slices_to_dense(const rg_context* context, const rg_indexed_slices* slices,
                                            rg_output* dense, rg_error* error);
// Adds up the slices of each row: every index once, ascending.
RG_API rg_status rg_indexed_slices_coalesce(const rg_context* context, const rg_indexed_slices* slices,
                                            rg_output* slice_values, rg_output* slice_indices, rg_error* error);

// ---- optimizers, which change the rows of a table that a gradient has ----

enum { RG_SGD = 0, RG_ADAGRAD = 1, RG_ADAM = 2, RG_ROWWISE_ADAGRAD = 3 };

// One step of an optimizer. Members that the rule does not name are ignored. States are changed; but for RowwiseAdagrad
// they have the shape of the table.
typedef struct rg_row_update {
  size_t struct_size;
  int32_t rule;
  double learning_rate;
  double epsilon;                        // Adagrad, Adam, RowwiseAdagrad
  double beta1;                          // Adam
  double beta2;                          // Adam
  int64_t step;                          // Adam: which update this is, counted from 1
  const rg_mutable_tensor* accumulator;  // Adagrad; RowwiseAdagrad: [rows of the table]
  const rg_mutable_tensor* m;            // Adam
  const rg_mutable_tensor* v;            // Adam
} rg_row_update;

// The usual settings of a rule; states are null. struct_size: sizeof(rg_row_update), as the program sees it.
RG_API void rg_row_update_init(rg_row_update* update, size_t struct_size, int32_t rule, double learning_rate);

RG_API rg_status rg_indexed_slices_apply(const rg_context* context, const rg_indexed_slices* slices,
                                         const rg_row_update* update, const rg_mutable_tensor* table, rg_error* error);

// Gradient and update in one pass, without storing the gradient. The bits are those of one after the other.
RG_API rg_status rg_sparse_segment_grad_apply(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                              const rg_tensor* indices, const rg_tensor* segment_ids,
                                              const rg_row_update* update, const rg_mutable_tensor* table,
                                              rg_error* error);
RG_API rg_status rg_sparse_segment_grad_apply_with_plan(const rg_context* context, int32_t combiner,
                                                        const rg_tensor* grad, const rg_segment_plan* plan,
                                                        const rg_row_update* update, const rg_mutable_tensor* table,
                                                        rg_error* error);

#ifdef __cplusplus
}  // extern "C"
#endif
