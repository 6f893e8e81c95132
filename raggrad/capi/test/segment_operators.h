// Pooling, its gradients and updates, with small operands. For capi_*test.c.
#pragma once

#include "raggrad/capi/test/operands.h"

static const int64_t one[] = {1}, two[] = {2}, three[] = {3}, four[] = {4};
static const int64_t two_by_two[] = {2, 2}, three_by_two[] = {3, 2}, seven_by_two[] = {7, 2};

// ---- gradient of a mean: segments 0 and 1 go to table rows 2 and 5; segment 0 has two ids ----

static const float grad_data[] = {2, 4, 8, 16};
static const int32_t index_data[] = {5, 2, 5};
static const int64_t segment_data[] = {0, 0, 1};
static const int32_t dim0_data = 7;
static const int32_t unique_data[] = {2, 5};

typedef struct Gradient {
  rg_tensor grad, indices, segment_ids, dim0;
} Gradient;

static inline Gradient gradient(void) {
  const Gradient g = {operand(grad_data, RG_FLOAT32, 2, two_by_two), operand(index_data, RG_INT32, 1, three),
                      operand(segment_data, RG_INT64, 1, three), tensor(&dim0_data, RG_INT32, 0, NULL)};
  return g;
}

static inline rg_status segment_v2(const rg_context* context, rg_output* out) {
  const Gradient g = gradient();
  return rg_sparse_segment_grad_v2(context, RG_MEAN, &g.grad, &g.indices, &g.segment_ids, &g.dim0, &out[0], &out[1],
                                   message());
}
static inline void mean_rows_check(const rg_output* out) {
  static const float rows[] = {1, 2, 9, 18};
  CHECK(holds(&out[0], RG_FLOAT32, 2, two_by_two, rows) && out[0].shape[2] == 0);
  CHECK(is_vector(&out[1], RG_INT32, 2, unique_data));
}

static inline rg_status segment_v1(const rg_context* context, rg_output* out) {
  const Gradient g = gradient();
  return rg_sparse_segment_grad(context, RG_SUM, &g.grad, &g.indices, &g.segment_ids, &g.dim0, &out[0], message());
}
static inline void sum_dense_check(const rg_output* out) {
  static const float rows[14] = {0, 0, 0, 0, 2, 4, 0, 0, 0, 0, 10, 20};
  CHECK(holds(&out[0], RG_FLOAT32, 2, seven_by_two, rows));
}

static inline rg_status segment_slices(const rg_context* context, rg_output* out) {
  const Gradient g = gradient();
  return rg_sparse_segment_grad_slices(context, RG_MEAN, &g.grad, &g.indices, &g.segment_ids, 7, &out[0], &out[1],
                                       message());
}

// ---- forwards ----

static const float table_data[] = {1, 2, 4, 8, 16, 32};
static const int32_t ids[] = {2, 0, 2}, segments[] = {0, 0, 2};

static inline rg_status segment(const rg_context* context, rg_output* out) {
  const rg_tensor table = operand(table_data, RG_FLOAT32, 2, three_by_two), indices = operand(ids, RG_INT32, 1, three),
                  segment_ids = operand(segments, RG_INT32, 1, three);
  return rg_sparse_segment(context, RG_MEAN, &table, &indices, &segment_ids, &out[0], message());
}
static inline void segment_check(const rg_output* out) {
  static const float want[] = {8.5, 17, 0, 0, 16, 32};
  CHECK(holds(&out[0], RG_FLOAT32, 2, three_by_two, want));
}

static inline rg_status segment_with_num_segments(const rg_context* context, rg_output* out) {
  static const int64_t num_segments = 4;
  const rg_tensor table = operand(table_data, RG_FLOAT32, 1, three), indices = operand(ids, RG_INT32, 1, three),
                  segment_ids = operand(segments, RG_INT32, 1, three), count = tensor(&num_segments, RG_INT64, 0, NULL);
  return rg_sparse_segment_with_num_segments(context, RG_SUM, &table, &indices, &segment_ids, &count, &out[0],
                                             message());
}
static inline void segment_with_num_segments_check(const rg_output* out) {
  static const float want[] = {5, 0, 4, 0};
  CHECK(is_vector(&out[0], RG_FLOAT32, 4, want));
}

// ---- with a plan ----

static inline rg_status plan_v2(const rg_context* context, rg_output* out) {
  const Gradient g = gradient();
  rg_segment_plan* plan;
  rg_status status = rg_segment_plan_make(context, &g.indices, &g.segment_ids, 7, 2, &plan, message());
  if (status != RG_OK) return status;
  status = rg_sparse_segment_grad_v2_with_plan(context, RG_MEAN, &g.grad, plan, &out[0], &out[1], message());
  rg_segment_plan_destroy(plan);
  return status;
}
static inline rg_status plan_v1(const rg_context* context, rg_output* out) {
  const Gradient g = gradient();
  rg_segment_plan* plan;
  rg_status status = rg_segment_plan_make(context, &g.indices, &g.segment_ids, 7, 2, &plan, message());
  if (status != RG_OK) return status;
  status = rg_sparse_segment_grad_with_plan(context, RG_SUM, &g.grad, plan, &out[0], message());
  rg_segment_plan_destroy(plan);
  return status;
}
static inline rg_status plan_forward(const rg_context* context, rg_output* out) {
  const rg_tensor table = operand(table_data, RG_FLOAT32, 2, three_by_two), indices = operand(ids, RG_INT32, 1, three),
                  segment_ids = operand(segments, RG_INT32, 1, three);
  rg_segment_plan* plan;
  rg_status status = rg_segment_plan_make(context, &indices, &segment_ids, 3, 3, &plan, message());
  if (status != RG_OK) return status;
  status = rg_sparse_segment_with_plan(context, RG_MEAN, &table, plan, &out[0], message());
  rg_segment_plan_destroy(plan);
  return status;
}

// ---- slices: rows 5, 2 and 5 of a table ----

static const float slice_data[] = {2, 4, 2, 4, 8, 16};

typedef struct Slices {
  rg_tensor values, indices;
  rg_indexed_slices slices;
} Slices;

static inline const rg_indexed_slices* slices_of(Slices* s) {
  const rg_indexed_slices slices = {sizeof slices, &s->values, &s->indices, 7};
  s->values = operand(slice_data, RG_FLOAT32, 2, three_by_two);
  s->indices = operand(index_data, RG_INT32, 1, three);
  s->slices = slices;
  return &s->slices;
}

static inline rg_status to_dense(const rg_context* context, rg_output* out) {
  Slices s;
  return rg_indexed_slices_to_dense(context, slices_of(&s), &out[0], message());
}
static inline rg_status coalesce(const rg_context* context, rg_output* out) {
  Slices s;
  return rg_indexed_slices_coalesce(context, slices_of(&s), &out[0], &out[1], message());
}
static inline void sum_rows_check(const rg_output* out) {
  static const float rows[] = {2, 4, 10, 20};
  CHECK(holds(&out[0], RG_FLOAT32, 2, two_by_two, rows) && is_vector(&out[1], RG_INT32, 2, unique_data));
}

// ---- updates of a table of ones, which is the first output; the states follow. The gradient is a sum. ----

static const float ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, zeros[14] = {0};

typedef enum How { kFromSlices, kFused, kFusedWithPlan } How;

static inline rg_status apply(const rg_context* context, How how, const rg_row_update* update,
                              const rg_mutable_tensor* table) {
  if (how == kFromSlices) {
    Slices s;
    return rg_indexed_slices_apply(context, slices_of(&s), update, table, message());
  }
  const Gradient g = gradient();
  if (how == kFused) {
    return rg_sparse_segment_grad_apply(context, RG_SUM, &g.grad, &g.indices, &g.segment_ids, update, table, message());
  }
  rg_segment_plan* plan;
  rg_status status = rg_segment_plan_make(context, &g.indices, &g.segment_ids, 7, 2, &plan, message());
  if (status != RG_OK) return status;
  status = rg_sparse_segment_grad_apply_with_plan(context, RG_SUM, &g.grad, plan, update, table, message());
  rg_segment_plan_destroy(plan);
  return status;
}

static inline rg_status update(const rg_context* context, How how, int32_t rule, rg_output* out) {
  rg_status status = RG_OK;
  rg_row_update step;
  rg_row_update_init(&step, sizeof step, rule, 0.5);
  const rg_mutable_tensor table = changeable(context, ones, RG_FLOAT32, 2, seven_by_two, &out[0], &status);
  rg_mutable_tensor states[2] = {table, table};
  const int number_of_states = rule == RG_SGD ? 0 : rule == RG_ADAM ? 2 : 1;
  const int rank = rule == RG_ROWWISE_ADAGRAD ? 1 : 2;
  for (int i = 0; i < number_of_states; ++i) {
    states[i] = changeable(context, zeros, RG_FLOAT32, rank, seven_by_two, &out[1 + i], &status);
  }
  step.accumulator = step.m = &states[0];
  step.v = &states[1];
  if (rule == RG_ADAGRAD || rule == RG_ROWWISE_ADAGRAD) step.epsilon = 0;
  if (rule == RG_ADAM) {  // rate = 0.5 * sqrt(0.75) / 0.5, and sqrt(v) = sqrt(0.75) * |g|
    step.beta1 = 0.5;
    step.beta2 = 0.25;
    step.epsilon = 0;
  }
  if (status == RG_OK) status = apply(context, how, &step, &table);
  for (int i = 0; i < 3 && status != RG_OK; ++i) rg_output_free(context, &out[i]);
  return status;
}

static inline rg_status sgd_slices(const rg_context* c, rg_output* out) { return update(c, kFromSlices, RG_SGD, out); }
static inline rg_status sgd_fused(const rg_context* c, rg_output* out) { return update(c, kFused, RG_SGD, out); }
static inline rg_status sgd_plan(const rg_context* c, rg_output* out) { return update(c, kFusedWithPlan, RG_SGD, out); }
static inline void sgd_check(const rg_output* out) {
  static const float want[] = {1, 1, 1, 1, 0, -1, 1, 1, 1, 1, -4, -9, 1, 1};
  CHECK(holds(&out[0], RG_FLOAT32, 2, seven_by_two, want));
}

static inline rg_status adagrad_slices(const rg_context* c, rg_output* out) {
  return update(c, kFromSlices, RG_ADAGRAD, out);
}
static inline rg_status adagrad_fused(const rg_context* c, rg_output* out) {
  return update(c, kFused, RG_ADAGRAD, out);
}
static inline void adagrad_check(const rg_output* out) {
  static const float want[] = {1, 1, 1, 1, 0.5, 0.5, 1, 1, 1, 1, 0.5, 0.5, 1, 1};
  static const float sums[14] = {0, 0, 0, 0, 4, 16, 0, 0, 0, 0, 100, 400};
  CHECK(holds(&out[0], RG_FLOAT32, 2, seven_by_two, want) && holds(&out[1], RG_FLOAT32, 2, seven_by_two, sums));
}

static inline rg_status adam_fused(const rg_context* c, rg_output* out) { return update(c, kFused, RG_ADAM, out); }
static inline rg_status adam_plan(const rg_context* c, rg_output* out) {
  return update(c, kFusedWithPlan, RG_ADAM, out);
}
static inline void adam_check(const rg_output* out) {
  static const float m[14] = {0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 5, 10}, v[14] = {0, 0, 0, 0, 3, 12, 0, 0, 0, 0, 75, 300};
  CHECK(holds(&out[1], RG_FLOAT32, 2, seven_by_two, m) && holds(&out[2], RG_FLOAT32, 2, seven_by_two, v));
  const float* table = out[0].data;
  for (int i = 0; i < 14; ++i) {
    const float want = m[i] == 0 ? 1.0f : 0.5f;
    CHECK(table[i] > want - 1e-6f && table[i] < want + 1e-6f);
  }
}

static inline rg_status rowwise_slices(const rg_context* c, rg_output* out) {
  return update(c, kFromSlices, RG_ROWWISE_ADAGRAD, out);
}
static inline rg_status rowwise_plan(const rg_context* c, rg_output* out) {
  return update(c, kFusedWithPlan, RG_ROWWISE_ADAGRAD, out);
}
static inline void rowwise_check(const rg_output* out) {
  static const float sums[7] = {0, 0, 10, 0, 0, 250};  // (4 + 16) / 2 and (100 + 400) / 2
  CHECK(holds(&out[1], RG_FLOAT32, 1, seven_by_two, sums));
  const float* table = out[0].data;
  for (int i = 0; i < 14; ++i) {  // 2 / sqrt(10) = 10 / sqrt(250), and twice that in the second column
    const float step = sums[i / 2] == 0 ? 0.0f : 0.5f * 0.632456f * (float)(1 + i % 2);
    CHECK(table[i] > 1 - step - 1e-6f && table[i] < 1 - step + 1e-6f);
  }
}

static const Operator segment_operators[] = {
    {"segment_v2", segment_v2, mean_rows_check, 2, 0, 0, 0},
    {"segment_v1", segment_v1, sum_dense_check, 1, 0, 0, 0},
    {"segment_slices", segment_slices, mean_rows_check, 2, 0, 0, 0},
    {"segment", segment, segment_check, 1, 0, 0, 0},
    {"segment_with_num_segments", segment_with_num_segments, segment_with_num_segments_check, 1, 0, 0, 0},
    {"plan_v2", plan_v2, mean_rows_check, 2, 0, 1, 0},
    {"plan_v1", plan_v1, sum_dense_check, 1, 0, 1, 0},
    {"plan_forward", plan_forward, segment_check, 1, 0, 1, 0},
    {"to_dense", to_dense, sum_dense_check, 1, 0, 0, 0},
    {"coalesce", coalesce, sum_rows_check, 2, 0, 0, 0},
    {"sgd_slices", sgd_slices, sgd_check, 1, 0, 1, 0},
    {"sgd_fused", sgd_fused, sgd_check, 1, 0, 1, 0},
    {"sgd_plan", sgd_plan, sgd_check, 1, 0, 1, 0},
    {"adagrad_slices", adagrad_slices, adagrad_check, 2, 0, 1, 0},
    {"adagrad_fused", adagrad_fused, adagrad_check, 2, 0, 1, 0},
    {"adam_fused", adam_fused, adam_check, 3, 0, 1, 0},
    {"adam_plan", adam_plan, adam_check, 3, 0, 1, 0},
    {"rowwise_slices", rowwise_slices, rowwise_check, 2, 0, 1, 0},
    {"rowwise_plan", rowwise_plan, rowwise_check, 2, 0, 1, 0},
};
