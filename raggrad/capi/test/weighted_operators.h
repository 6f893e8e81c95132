// Pooling with weights, with small operands. For capi_*test.c.
#pragma once

#include "raggrad/capi/test/segment_operators.h"

static const float weight_data[] = {1, 3, 2};

typedef struct WeightedIds {
  rg_tensor indices, segment_ids, weights;
  rg_weighted_ids ids;
} WeightedIds;

// The weights with the ids of `gradient()`: segment 0 has weights 1 and 3, segment 1 has weight 2.
static inline const rg_weighted_ids* weighted_ids(WeightedIds* in, int32_t divisor) {
  const rg_weighted_ids of = {sizeof of, &in->indices, &in->segment_ids, NULL, &in->weights, divisor};
  const Gradient g = gradient();
  in->indices = g.indices;
  in->segment_ids = g.segment_ids;
  in->weights = operand(weight_data, RG_FLOAT32, 1, three);
  in->ids = of;
  return &in->ids;
}

static const float wide_table[] = {1, 1, 1, 1, 4, 8, 1, 1, 1, 1, 8, 16, 1, 1};  // rows 2 and 5 are named

static inline rg_status weighted(const rg_context* context, rg_output* out) {
  WeightedIds in;
  const rg_tensor table = operand(wide_table, RG_FLOAT32, 2, seven_by_two);
  return rg_weighted_segment(context, RG_MEAN, &table, weighted_ids(&in, RG_BY_WEIGHTS), -1, &out[0], message());
}
static inline void weighted_check(const rg_output* out) {
  static const float want[] = {5, 10, 8, 16};
  CHECK(holds(&out[0], RG_FLOAT32, 2, two_by_two, want));
}

static inline rg_status weighted_plan(const rg_context* context, rg_output* out) {
  WeightedIds in;
  rg_weighted_ids of = *weighted_ids(&in, RG_BY_WEIGHTS);
  rg_segment_plan* plan;
  rg_status status = rg_segment_plan_make(context, of.indices, of.segment_ids, 7, 2, &plan, message());
  if (status != RG_OK) return status;
  of.plan = plan;
  of.indices = of.segment_ids = NULL;
  const rg_tensor table = operand(wide_table, RG_FLOAT32, 2, seven_by_two);
  status = rg_weighted_segment(context, RG_MEAN, &table, &of, 2, &out[0], message());
  rg_segment_plan_destroy(plan);
  return status;
}

static inline rg_status weighted_slices(const rg_context* context, rg_output* out) {
  WeightedIds in;
  const rg_tensor grad = gradient().grad;
  return rg_weighted_segment_grad_slices(context, RG_MEAN, &grad, weighted_ids(&in, RG_BY_COUNT), 7, &out[0], &out[1],
                                         message());
}
static inline void weighted_rows_check(const rg_output* out) {
  static const float rows[] = {3, 6, 17, 34};
  CHECK(holds(&out[0], RG_FLOAT32, 2, two_by_two, rows) && is_vector(&out[1], RG_INT32, 2, unique_data));
}

static inline rg_status weighted_dense(const rg_context* context, rg_output* out) {
  WeightedIds in;
  const rg_tensor grad = gradient().grad;
  return rg_weighted_segment_grad(context, RG_SUM, &grad, weighted_ids(&in, RG_BY_WEIGHTS), 7, &out[0], message());
}
static inline void weighted_dense_check(const rg_output* out) {
  static const float rows[14] = {0, 0, 0, 0, 6, 12, 0, 0, 0, 0, 18, 36};
  CHECK(holds(&out[0], RG_FLOAT32, 2, seven_by_two, rows));
}

static inline rg_status weighted_padded(const rg_context* context, rg_output* out) {
  WeightedIds in;
  const rg_tensor grad = gradient().grad;
  return rg_weighted_segment_grad_padded(context, RG_MEAN, &grad, weighted_ids(&in, RG_BY_COUNT), 7, 2, &out[0],
                                         &out[1], &out[2], message());
}

static inline rg_status weighted_sgd(const rg_context* context, rg_output* out) {
  WeightedIds in;
  rg_status status = RG_OK;
  rg_row_update step;
  rg_row_update_init(&step, sizeof step, RG_SGD, 0.5);
  const rg_mutable_tensor table = changeable(context, ones, RG_FLOAT32, 2, seven_by_two, &out[0], &status);
  const rg_tensor grad = gradient().grad;
  if (status != RG_OK) return status;
  status = rg_weighted_segment_grad_apply(context, RG_SUM, &grad, weighted_ids(&in, RG_BY_WEIGHTS), &step, &table,
                                          message());
  if (status != RG_OK) rg_output_free(context, &out[0]);
  return status;
}
static inline void weighted_sgd_check(const rg_output* out) {
  static const float want[] = {1, 1, 1, 1, -2, -5, 1, 1, 1, 1, -8, -17, 1, 1};
  CHECK(holds(&out[0], RG_FLOAT32, 2, seven_by_two, want));
}

static inline rg_status weights_grad(const rg_context* context, rg_output* out) {
  WeightedIds in;
  const rg_tensor table = operand(wide_table, RG_FLOAT32, 2, seven_by_two), grad = gradient().grad;
  return rg_weighted_segment_weights_grad(context, RG_MEAN, &grad, &table, weighted_ids(&in, RG_BY_WEIGHTS), &out[0],
                                          message());
}
static inline void weights_grad_check(const rg_output* out) {
  static const float want[] = {7.5, -2.5, 0};  // (dot - mean) / 4: dots 80 and 40, mean 50
  CHECK(is_vector(&out[0], RG_FLOAT32, 3, want));
}

static const Operator weighted_operators[] = {
    {"weighted", weighted, weighted_check, 1, 0, 0, 1},
    {"weighted_plan", weighted_plan, weighted_check, 1, 0, 1, 1},
    {"weighted_slices", weighted_slices, weighted_rows_check, 2, 0, 0, 1},
    {"weighted_dense", weighted_dense, weighted_dense_check, 1, 0, 0, 1},
    {"weighted_padded", weighted_padded, weighted_rows_check, 3, 0, 0, 1},
    {"weighted_sgd", weighted_sgd, weighted_sgd_check, 1, 0, 1, 1},
    {"weights_grad", weights_grad, weights_grad_check, 1, 0, 0, 1},
};
