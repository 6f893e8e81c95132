// Padded forms, with small operands and room for more than they need. For capi_*test.c.
#pragma once

#include "raggrad/capi/test/sparse_operators.h"

static const int64_t six[] = {6}, four_by_two[] = {4, 2}, six_by_two[] = {6, 2};

// Ends a run: reads the report, which is the last output, and gives everything back after a failure.
static inline rg_status checked(const rg_context* context, rg_status status, rg_output* out, int outputs,
                                int64_t want) {
  if (status == RG_OK) {
    const rg_tensor report = rg_output_view(&out[outputs - 1]);
    int64_t count = -1;
    status = rg_check_padded(context, &report, &count, message());
    CHECK(count == (status == RG_OK ? want : 0));
  }
  for (int i = 0; i < outputs && status != RG_OK; ++i) rg_output_free(context, &out[i]);
  return status;
}

static inline rg_status segment_padded(const rg_context* context, rg_output* out) {
  const Gradient g = gradient();
  const rg_status status = rg_sparse_segment_grad_v2_padded(context, RG_MEAN, &g.grad, &g.indices, &g.segment_ids,
                                                            &g.dim0, 4, &out[0], &out[1], &out[2], message());
  return checked(context, status, out, 3, 2);
}
static inline void segment_padded_check(const rg_output* out) {
  static const float rows[8] = {1, 2, 9, 18};
  static const int32_t unique[] = {2, 5, 7, 7};
  CHECK(holds(&out[0], RG_FLOAT32, 2, four_by_two, rows) && is_vector(&out[1], RG_INT32, 4, unique));
  CHECK(out[2].dtype == RG_UINT64 && ((const uint64_t*)out[2].data)[0] == 2);
}

static inline rg_status coalesce_padded(const rg_context* context, rg_output* out) {
  Slices s;
  const rg_status status =
      rg_indexed_slices_coalesce_padded(context, slices_of(&s), 4, &out[0], &out[1], &out[2], message());
  return checked(context, status, out, 3, 2);
}
static inline void coalesce_padded_check(const rg_output* out) {
  static const float rows[8] = {2, 4, 10, 20};
  static const int32_t unique[] = {2, 5, 7, 7};
  CHECK(holds(&out[0], RG_FLOAT32, 2, four_by_two, rows) && is_vector(&out[1], RG_INT32, 4, unique));
}

static inline rg_status sparse_fill_padded(const rg_context* context, rg_output* out) {
  static const float numbers[] = {1, 2, 3}, minus_one = -1;
  const rg_tensor indices = operand(entries, RG_INT64, 2, three_by_two),
                  values = operand(numbers, RG_FLOAT32, 1, three), dense_shape = tensor(dense_dims, RG_INT64, 1, two),
                  default_value = operand(&minus_one, RG_FLOAT32, 0, NULL);
  const rg_status status = rg_sparse_fill_empty_rows_padded(context, &indices, &values, &dense_shape, &default_value, 6,
                                                            &out[0], &out[1], &out[2], &out[3], &out[4], message());
  return checked(context, status, out, 5, 5);
}
static inline void sparse_fill_padded_check(const rg_output* out) {
  static const int64_t indices[] = {0, 4, 1, 0, 2, 0, 3, 1, 3, 0, 4, 0}, map[] = {3, 0, 4};
  static const float values[6] = {2, -1, -1, 1, 3};
  static const char empty[] = {0, 1, 1, 0};
  CHECK(holds(&out[0], RG_INT64, 2, six_by_two, indices) && is_vector(&out[1], RG_FLOAT32, 6, values));
  CHECK(is_vector(&out[2], RG_BOOL, 4, empty) && is_vector(&out[3], RG_INT64, 3, map));
}

static inline rg_status ragged_fill_padded(const rg_context* context, rg_output* out) {
  static const int64_t rows[] = {0, 2}, num_rows = 3;
  static const double numbers[] = {0.5, 1.5}, minus_one = -1;
  const rg_tensor rowids = operand(rows, RG_INT64, 1, two), values = operand(numbers, RG_FLOAT64, 1, two),
                  nrows = tensor(&num_rows, RG_INT64, 0, NULL),
                  default_value = operand(&minus_one, RG_FLOAT64, 0, NULL);
  const rg_status status = rg_ragged_fill_empty_rows_padded(context, &rowids, &values, &nrows, &default_value, 4,
                                                            &out[0], &out[1], &out[2], &out[3], &out[4], message());
  return checked(context, status, out, 5, 3);
}
static inline void ragged_fill_padded_check(const rg_output* out) {
  static const int64_t rows[] = {0, 1, 2, 3}, map[] = {0, 2};
  static const double values[4] = {0.5, -1, 1.5};
  static const char empty[] = {0, 1, 0};
  CHECK(is_vector(&out[0], RG_INT64, 4, rows) && is_vector(&out[1], RG_FLOAT64, 4, values));
  CHECK(is_vector(&out[2], RG_BOOL, 3, empty) && is_vector(&out[3], RG_INT64, 2, map));
}

static inline rg_status slice_padded(const rg_context* context, rg_output* out) {
  static const int64_t from[] = {1, 0}, extent[] = {3, 1};
  const rg_tensor indices = operand(entries, RG_INT64, 2, three_by_two),
                  values = operand(table_data, RG_FLOAT32, 1, three), shape = tensor(dense_dims, RG_INT64, 1, two),
                  start = tensor(from, RG_INT64, 1, two), size = tensor(extent, RG_INT64, 1, two);
  const rg_status status = rg_sparse_slice_padded(context, &indices, &values, &shape, &start, &size, 2, &out[0],
                                                  &out[1], &out[2], &out[3], message());
  return checked(context, status, out, 4, 1);
}
static inline void slice_padded_check(const rg_output* out) {
  static const int64_t indices[] = {2, 0, 3, 0}, shape[] = {3, 1};
  static const float values[] = {4, 0};
  CHECK(holds(&out[0], RG_INT64, 2, two_by_two, indices) && is_vector(&out[1], RG_FLOAT32, 2, values));
  CHECK(is_vector(&out[2], RG_INT64, 2, shape));
}

static const Operator padded_operators[] = {
    {"segment_padded", segment_padded, segment_padded_check, 3, 0, 0, 0},
    {"coalesce_padded", coalesce_padded, coalesce_padded_check, 3, 0, 0, 0},
    {"sparse_fill_padded", sparse_fill_padded, sparse_fill_padded_check, 5, 0, 0, 0},
    {"ragged_fill_padded", ragged_fill_padded, ragged_fill_padded_check, 5, 0, 0, 0},
    {"slice_padded", slice_padded, slice_padded_check, 4, 1u << 2, 0, 0},
};
