// Empty rows and slices of sparse tensors, with small operands. For capi_*test.c.
#pragma once

#include "raggrad/capi/test/segment_operators.h"

// ---- gradients ----

static const int64_t map_data[] = {3, 0};
static const int16_t fill_data[] = {1, 20, 300, 4000};

static inline rg_status sparse_fill_grad(const rg_context* context, rg_output* out) {
  const rg_tensor map = operand(map_data, RG_INT64, 1, two), grad = operand(fill_data, RG_INT16, 1, four);
  return rg_sparse_fill_empty_rows_grad(context, &map, &grad, &out[0], &out[1], message());
}
static inline rg_status ragged_fill_grad(const rg_context* context, rg_output* out) {
  const rg_tensor map = operand(map_data, RG_INT64, 1, two), grad = operand(fill_data, RG_INT16, 1, four);
  return rg_ragged_fill_empty_rows_grad(context, &map, &grad, &out[0], &out[1], message());
}
static inline void fill_grad_check(const rg_output* out) {
  static const int16_t values[] = {4000, 1}, rest = 320;
  CHECK(is_vector(&out[0], RG_INT16, 2, values) && holds(&out[1], RG_INT16, 0, NULL, &rest));
}

static inline rg_status slice_grad(const rg_context* context, rg_output* out) {
  static const double grad_values[] = {0.5, 0.25};
  static const int64_t before[] = {0, 1, 2, 3, 5, 5}, after[] = {0, 0, 3, 2}, start[] = {2, 3};
  const rg_tensor grad = operand(grad_values, RG_FLOAT64, 1, two),
                  input_indices = operand(before, RG_INT64, 2, three_by_two),
                  input_start = tensor(start, RG_INT64, 1, two),
                  output_indices = operand(after, RG_INT64, 2, two_by_two);
  return rg_sparse_slice_grad(context, &grad, &input_indices, &input_start, &output_indices, &out[0], message());
}
static inline void slice_grad_check(const rg_output* out) {
  static const double values[] = {0, 0.5, 0.25};
  CHECK(is_vector(&out[0], RG_FLOAT64, 3, values));
}

// ---- forwards, of a 4 x 5 tensor with three entries ----

static const int64_t entries[] = {3, 1, 0, 4, 3, 0}, dense_dims[] = {4, 5};

static inline rg_status sparse_fill_of(const rg_context* context, int32_t dtype, const void* data, const void* filler,
                                       rg_output* out) {
  const rg_tensor indices = operand(entries, RG_INT64, 2, three_by_two), values = operand(data, dtype, 1, three),
                  dense_shape = tensor(dense_dims, RG_INT64, 1, two), default_value = operand(filler, dtype, 0, NULL);
  return rg_sparse_fill_empty_rows(context, &indices, &values, &dense_shape, &default_value, &out[0], &out[1], &out[2],
                                   &out[3], message());
}
static inline void filled_check(const rg_output* out) {
  static const int64_t indices[] = {0, 4, 1, 0, 2, 0, 3, 1, 3, 0}, shape[] = {5, 2}, map[] = {3, 0, 4};
  static const char empty[] = {0, 1, 1, 0};
  CHECK(holds(&out[0], RG_INT64, 2, shape, indices));
  CHECK(is_vector(&out[2], RG_BOOL, 4, empty) && is_vector(&out[3], RG_INT64, 3, map));
}

static inline rg_status sparse_fill(const rg_context* context, rg_output* out) {
  static const float numbers[] = {1, 2, 3}, minus_one = -1;
  return sparse_fill_of(context, RG_FLOAT32, numbers, &minus_one, out);
}
static inline void sparse_fill_check(const rg_output* out) {
  static const float values[] = {2, -1, -1, 1, 3};
  filled_check(out);
  CHECK(is_vector(&out[1], RG_FLOAT32, 5, values));
}

static inline rg_status string_fill(const rg_context* context, rg_output* out) {
  static const rg_string words[] = {{"ragged", 6}, {"a", 1}, {NULL, 0}}, none = {"none", 4};
  return sparse_fill_of(context, RG_STRING, words, &none, out);
}
static inline void string_fill_check(const rg_output* out) {
  static const char* want[] = {"a", "none", "none", "ragged", ""};
  filled_check(out);
  const rg_string* strings = out[1].data;
  CHECK(out[1].rank == 1 && out[1].shape[0] == 5);
  for (int i = 0; i < 5; ++i) {
    CHECK(strings[i].size == strlen(want[i]) && memcmp(strings[i].data, want[i], strings[i].size) == 0);
  }
}

static inline rg_status ragged_fill(const rg_context* context, rg_output* out) {
  static const int64_t rows[] = {0, 2}, count = 3;
  static const double numbers[] = {0.5, 1.5}, minus_one = -1;
  const rg_tensor rowids = operand(rows, RG_INT64, 1, two), values = operand(numbers, RG_FLOAT64, 1, two),
                  nrows = tensor(&count, RG_INT64, 0, NULL), default_value = operand(&minus_one, RG_FLOAT64, 0, NULL);
  return rg_ragged_fill_empty_rows(context, &rowids, &values, &nrows, &default_value, &out[0], &out[1], &out[2],
                                   &out[3], message());
}
static inline void ragged_fill_check(const rg_output* out) {
  static const int64_t rows[] = {0, 1, 2}, map[] = {0, 2};
  static const double values[] = {0.5, -1, 1.5};
  static const char empty[] = {0, 1, 0};
  CHECK(is_vector(&out[0], RG_INT64, 3, rows) && is_vector(&out[1], RG_FLOAT64, 3, values));
  CHECK(is_vector(&out[2], RG_BOOL, 3, empty) && is_vector(&out[3], RG_INT64, 2, map));
}

static inline rg_status slice(const rg_context* context, rg_output* out) {
  static const int64_t from[] = {1, 0}, extent[] = {3, 1};
  const rg_tensor indices = operand(entries, RG_INT64, 2, three_by_two),
                  values = operand(table_data, RG_FLOAT32, 1, three), shape = tensor(dense_dims, RG_INT64, 1, two),
                  start = tensor(from, RG_INT64, 1, two), size = tensor(extent, RG_INT64, 1, two);
  return rg_sparse_slice(context, &indices, &values, &shape, &start, &size, &out[0], &out[1], &out[2], message());
}
static inline void slice_check(const rg_output* out) {
  static const int64_t indices[] = {2, 0}, shape[] = {3, 1}, one_by_two[] = {1, 2};
  static const float values[] = {4};
  CHECK(holds(&out[0], RG_INT64, 2, one_by_two, indices) && is_vector(&out[1], RG_FLOAT32, 1, values));
  CHECK(is_vector(&out[2], RG_INT64, 2, shape));
}

static const Operator sparse_operators[] = {
    {"sparse_fill_grad", sparse_fill_grad, fill_grad_check, 2, 0, 0, 0},
    {"ragged_fill_grad", ragged_fill_grad, fill_grad_check, 2, 0, 0, 0},
    {"slice_grad", slice_grad, slice_grad_check, 1, 0, 0, 0},
    {"sparse_fill", sparse_fill, sparse_fill_check, 4, 0, 0, 0},
    {"string_fill", string_fill, string_fill_check, 4, 0, 0, 1},
    {"ragged_fill", ragged_fill, ragged_fill_check, 4, 0, 0, 0},
    {"slice", slice, slice_check, 3, 1u << 2, 0, 0},
};
