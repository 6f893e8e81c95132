// The gradients, each with its smallest interesting operands, and memory of the program. For capi_*_test.c.
#pragma once

#include "raggrad/capi/test/testing.h"

static inline int is_vector(const rg_output* output, int32_t dtype, int64_t size, const void* values) {
  const size_t bytes = (size_t)size * rg_dtype_size(dtype);
  return output->dtype == dtype && output->device == RG_CPU && output->rank == 1 && output->shape[0] == size &&
         output->bytes == bytes && memcmp(output->data, values, bytes) == 0;
}

// ---- an allocator that counts, and fails when told to ----

typedef struct Heap {
  int requests, fail_at, live, outputs;
  size_t live_bytes;
  int misalign;
} Heap;

static inline void* heap_allocate(void* user, size_t bytes, const rg_output_spec* output) {
  Heap* heap = user;
  CHECK(bytes > 0);
  if (heap->requests++ == heap->fail_at) return NULL;
  if (output != NULL) {
    size_t elements = 1;
    for (int32_t i = 0; i < output->rank; ++i) elements *= (size_t)output->shape[i];
    CHECK(output->index == heap->outputs++);
    CHECK(output->bytes == bytes && bytes >= elements * rg_dtype_size(output->dtype));
  }
  ++heap->live;
  heap->live_bytes += bytes;
  char* memory = aligned_alloc(RG_ALIGNMENT, (bytes / RG_ALIGNMENT + 2) * RG_ALIGNMENT);
  return memory + (heap->misalign ? 8 : 0);
}

static inline void heap_deallocate(void* user, void* pointer, size_t bytes) {
  Heap* heap = user;
  --heap->live;
  heap->live_bytes -= bytes;
  free((char*)pointer - (heap->misalign ? 8 : 0));
}

static inline rg_context heap_context(Heap* heap) {
  rg_context context;
  const Heap fresh = {0, -1, 0, 0, 0, 0};
  *heap = fresh;
  rg_context_init(&context, sizeof context);
  context.user = heap;
  context.allocate = heap_allocate;
  context.deallocate = heap_deallocate;
  return context;
}

// ---- the operators, each with its smallest interesting operands ----

typedef struct Outputs {
  rg_output first, second;
} Outputs;

// gradient of a mean: rows 0 and 1 of grad go to table rows 2 and 5; segment 0 has two ids
static const float grad_data[] = {2, 4, 8, 16};
static const int64_t grad_shape[] = {2, 2};
static const int32_t index_data[] = {5, 2, 5};
static const int64_t segment_data[] = {0, 0, 1};
static const int64_t three[] = {3};
static const int32_t dim0_data = 7;

static inline rg_status segment_v2(const rg_context* context, Outputs* out, rg_error* error) {
  const rg_tensor grad = tensor(grad_data, RG_FLOAT32, 2, grad_shape);
  const rg_tensor indices = tensor(index_data, RG_INT32, 1, three);
  const rg_tensor segment_ids = tensor(segment_data, RG_INT64, 1, three);
  const rg_tensor dim0 = tensor(&dim0_data, RG_INT32, 0, NULL);
  return rg_sparse_segment_grad_v2(context, RG_MEAN, &grad, &indices, &segment_ids, &dim0, &out->first, &out->second,
                                   error);
}
static inline void segment_v2_check(const Outputs* out) {
  static const float rows[] = {1, 2, 9, 18};
  static const int32_t unique[] = {2, 5};
  CHECK(out->first.dtype == RG_FLOAT32 && out->first.rank == 2 && out->first.bytes == sizeof rows);
  CHECK(out->first.shape[0] == 2 && out->first.shape[1] == 2 && out->first.shape[2] == 0);
  CHECK(memcmp(out->first.data, rows, sizeof rows) == 0);
  CHECK(is_vector(&out->second, RG_INT32, 2, unique));
}

static inline rg_status segment_v1(const rg_context* context, Outputs* out, rg_error* error) {
  const rg_tensor grad = tensor(grad_data, RG_FLOAT32, 2, grad_shape);
  const rg_tensor indices = tensor(index_data, RG_INT32, 1, three);
  const rg_tensor segment_ids = tensor(segment_data, RG_INT64, 1, three);
  const rg_tensor dim0 = tensor(&dim0_data, RG_INT32, 0, NULL);
  return rg_sparse_segment_grad(context, RG_SUM, &grad, &indices, &segment_ids, &dim0, &out->first, error);
}
static inline void segment_v1_check(const Outputs* out) {
  static const float rows[14] = {0, 0, 0, 0, 2, 4, 0, 0, 0, 0, 10, 20};
  CHECK(out->first.rank == 2 && out->first.shape[0] == 7 && out->first.shape[1] == 2);
  CHECK(out->first.bytes == sizeof rows && memcmp(out->first.data, rows, sizeof rows) == 0);
}

static const int64_t map_data[] = {3, 0};
static const int64_t two[] = {2};
static const int16_t fill_data[] = {1, 20, 300, 4000};
static const int64_t four[] = {4};

static inline rg_status sparse_fill(const rg_context* context, Outputs* out, rg_error* error) {
  const rg_tensor map = tensor(map_data, RG_INT64, 1, two);
  const rg_tensor grad = tensor(fill_data, RG_INT16, 1, four);
  return rg_sparse_fill_empty_rows_grad(context, &map, &grad, &out->first, &out->second, error);
}
static inline rg_status ragged_fill(const rg_context* context, Outputs* out, rg_error* error) {
  const rg_tensor map = tensor(map_data, RG_INT64, 1, two);
  const rg_tensor grad = tensor(fill_data, RG_INT16, 1, four);
  return rg_ragged_fill_empty_rows_grad(context, &map, &grad, &out->first, &out->second, error);
}
static inline void fill_check(const Outputs* out) {
  static const int16_t values[] = {4000, 1};
  CHECK(is_vector(&out->first, RG_INT16, 2, values));
  CHECK(out->second.dtype == RG_INT16 && out->second.rank == 0 && *(const int16_t*)out->second.data == 320);
}

static inline rg_status slice(const rg_context* context, Outputs* out, rg_error* error) {
  static const double grad_values[] = {0.5, 0.25};
  static const int64_t before[] = {0, 1, 2, 3, 5, 5}, after[] = {0, 0, 3, 2}, start[] = {2, 3};
  static const int64_t before_shape[] = {3, 2}, after_shape[] = {2, 2};
  const rg_tensor grad = tensor(grad_values, RG_FLOAT64, 1, two);
  const rg_tensor input_indices = tensor(before, RG_INT64, 2, before_shape);
  const rg_tensor input_start = tensor(start, RG_INT64, 1, two);
  const rg_tensor output_indices = tensor(after, RG_INT64, 2, after_shape);
  return rg_sparse_slice_grad(context, &grad, &input_indices, &input_start, &output_indices, &out->first, error);
}
static inline void slice_check(const Outputs* out) {
  static const double values[] = {0, 0.5, 0.25};
  CHECK(is_vector(&out->first, RG_FLOAT64, 3, values));
}

static const rg_string words[] = {{"ragged", 6}, {NULL, 0}, {"a\0b", 3}};
static const int64_t splits_data[] = {0, 2, 4, 5};
static const int32_t dense_data = 5;
static const int64_t one[] = {1};

// Three elements of strings, the middle one missing.
static inline rg_status variant(const rg_context* context, Outputs* out, rg_error* error) {
  const rg_tensor splits = tensor(splits_data, RG_INT64, 1, four);
  const rg_tensor dense = tensor(&dense_data, RG_INT32, 1, one);
  rg_ragged elements[3];
  memset(elements, 0, sizeof elements);
  elements[0].values = tensor(words, RG_STRING, 1, two);
  elements[1].missing = 1;
  elements[1].values.rank = -77;  // not read, as the element is missing
  elements[2].values = tensor(words + 2, RG_STRING, 0, NULL);
  elements[2].num_splits = 3;  // not read: the gradient ignores splits
  const rg_variant_array array = {1, three, 3, elements};
  return rg_ragged_tensor_to_variant_grad(context, &array, &splits, &dense, RG_STRING, &out->first, error);
}
static inline void variant_check(const Outputs* out) {
  static const size_t sizes[] = {6, 0, 0, 0, 3};
  const rg_string* got = out->first.data;
  const char* characters = (const char*)(got + 5);
  CHECK(out->first.dtype == RG_STRING && out->first.rank == 1 && out->first.shape[0] == 5);
  CHECK(out->first.bytes == 5 * sizeof(rg_string) + 9);
  for (int i = 0; i < 5; ++i) CHECK(got[i].size == sizes[i]);
  CHECK(got[0].data == characters && memcmp(characters, "ragged", 6) == 0);
  CHECK(got[4].data == characters + 6 && memcmp(got[4].data, "a\0b", 3) == 0);
}

typedef struct Operator {
  const char* name;
  rg_status (*run)(const rg_context* context, Outputs* out, rg_error* error);
  void (*check)(const Outputs* out);
} Operator;

static const Operator operators[] = {
    {"segment_v2", segment_v2, segment_v2_check},
    {"segment_v1", segment_v1, segment_v1_check},
    {"sparse_fill", sparse_fill, fill_check},
    {"ragged_fill", ragged_fill, fill_check},
    {"slice", slice, slice_check},
    {"variant", variant, variant_check},
};

static inline void free_outputs(const rg_context* context, Outputs* out) {
  rg_output_free(context, &out->first);
  rg_output_free(context, &out->second);
  CHECK(owns_nothing(&out->first) && owns_nothing(&out->second));
}
