// Variant arrays, with small operands. For capi_*test.c.
#pragma once

#include "raggrad/capi/test/padded_operators.h"
#include "raggrad/capi/test/weighted_operators.h"

// ---- gradient: three elements, the middle one missing; two, two and one rows ----

static const int64_t splits_data[] = {0, 2, 4, 5};
static const int32_t dense_rows = 5;

static inline rg_status variant_grad_of(const rg_context* context, int32_t dtype, const void* first, const void* last,
                                        rg_output* out) {
  const rg_tensor splits = operand(splits_data, RG_INT64, 1, four), shape = tensor(&dense_rows, RG_INT32, 1, one);
  const rg_tensor values[] = {operand(first, dtype, 1, two), operand(last, dtype, 0, NULL)};
  // The gradient ignores splits.
  const rg_ragged elements[] = {{sizeof elements[0], &values[0], NULL, 0}, {sizeof elements[0], &values[1], NULL, 3}};
  const rg_ragged* list[] = {&elements[0], NULL, &elements[1]};
  const rg_variant_array array = {sizeof array, 1, three, 3, list};
  return rg_ragged_tensor_to_variant_grad(context, &array, &splits, &shape, dtype, &out[0], message());
}

static inline rg_status variant_grad(const rg_context* context, rg_output* out) {
  static const float numbers[] = {1, 2, 3};
  return variant_grad_of(context, RG_FLOAT32, numbers, numbers + 2, out);
}
static inline void variant_grad_check(const rg_output* out) {
  static const float want[] = {1, 2, 0, 0, 3};
  CHECK(is_vector(&out[0], RG_FLOAT32, 5, want));
}

static inline rg_status string_grad(const rg_context* context, rg_output* out) {
  static const rg_string words[] = {{"ragged", 6}, {NULL, 0}, {"a\0b", 3}};
  return variant_grad_of(context, RG_STRING, words, words + 2, out);
}
static inline void string_grad_check(const rg_output* out) {
  static const size_t sizes[] = {6, 0, 0, 0, 3};
  const rg_string* got = out[0].data;
  const char* characters = (const char*)(got + 5);
  CHECK(out[0].dtype == RG_STRING && out[0].rank == 1 && out[0].shape[0] == 5);
  CHECK(out[0].bytes == 5 * sizeof(rg_string) + 9);
  for (int i = 0; i < 5; ++i) CHECK(got[i].size == sizes[i]);
  CHECK(got[0].data == characters && memcmp(characters, "ragged", 6) == 0);
  CHECK(got[4].data == characters + 6 && memcmp(got[4].data, "a\0b", 3) == 0);
}

// ---- [[[1], []], [[2, 3, 4]]] in pieces and joined again: two rows, three rows in them, four numbers ----

static const int32_t outer_data[] = {0, 2, 3}, inner_data[] = {0, 1, 1, 4};
static const float leaves[] = {1, 2, 3, 4};

static inline rg_status there_and_back(const rg_context* context, rg_output* out) {
  const rg_tensor outer = operand(outer_data, RG_INT32, 1, three), inner = operand(inner_data, RG_INT32, 1, four),
                  values = operand(leaves, RG_FLOAT32, 1, four);
  const rg_tensor* splits[] = {&outer, &inner};
  rg_variant_output pieces = RG_INIT(rg_variant_output);
  rg_status status = rg_ragged_tensor_to_variant(context, splits, 2, &values, 1, &pieces, message());
  if (status != RG_OK) {
    CHECK(pieces.array == NULL && pieces.blocks[0].data == NULL && pieces.blocks[2].data == NULL);
    return status;
  }
  CHECK(pieces.array->num_elements == 2 && pieces.array->rank == 1 && pieces.array->shape[0] == 2);
  const rg_ragged* last = pieces.array->elements[1];
  CHECK(last->num_splits == 1 && last->values->device_kind == place && last->values->shape[0] == 3);
  CHECK(last->nested_splits[0]->device_kind == RG_CPU && ((const int32_t*)last->nested_splits[0]->data)[1] == 3);
  CHECK(pieces.blocks[0].device_kind == place && pieces.blocks[1].device_kind == RG_CPU);
  rg_output* levels[] = {&out[0], &out[1]};
  status =
      rg_ragged_tensor_from_variant(context, pieces.array, -1, 2, RG_FLOAT32, RG_INT32, levels, &out[2], message());
  rg_variant_output_free(context, &pieces);
  CHECK(pieces.array == NULL && pieces.blocks[0].data == NULL);
  return status;
}
static inline void there_and_back_check(const rg_output* out) {
  CHECK(is_vector(&out[0], RG_INT32, 3, outer_data) && is_vector(&out[1], RG_INT32, 4, inner_data));
  CHECK(is_vector(&out[2], RG_FLOAT32, 4, leaves));
}

static const Operator ragged_operators[] = {
    {"variant_grad", variant_grad, variant_grad_check, 1, 0, 0, 0},
    {"string_grad", string_grad, string_grad_check, 1, 0, 0, 1},
    {"there_and_back", there_and_back, there_and_back_check, 3, 3, 1, 0},
};

// Calls test(operator) for the operators of all families.
static inline void for_each_operator(void (*test)(const Operator* operator)) {
  for (int64_t i = 0; i < COUNT(segment_operators); ++i) test(&segment_operators[i]);
  for (int64_t i = 0; i < COUNT(sparse_operators); ++i) test(&sparse_operators[i]);
  for (int64_t i = 0; i < COUNT(padded_operators); ++i) test(&padded_operators[i]);
  for (int64_t i = 0; i < COUNT(ragged_operators); ++i) test(&ragged_operators[i]);
  for (int64_t i = 0; i < COUNT(weighted_operators); ++i) test(&weighted_operators[i]);
}
