// Variant arrays through the C interface.
#include "raggrad/capi/test/testing.h"

// ---- [[["a"], []], [["bc", "", "d"]]]: two rows, three rows in them, four strings ----

static const int32_t outer_data[] = {0, 2, 3};
static const int32_t inner_data[] = {0, 1, 1, 4};
static const rg_string words[] = {{"a", 1}, {"bc", 2}, {NULL, 0}, {"d", 1}};
static const int64_t three[] = {3}, four[] = {4};
static const rg_tensor splits[] = {{outer_data, RG_INT32, RG_CPU, 1, three}, {inner_data, RG_INT32, RG_CPU, 1, four}};
static const rg_tensor values = {words, RG_STRING, RG_CPU, 1, four};

static int same(const rg_output* output, const int32_t* numbers, int64_t size) {
  return output->dtype == RG_INT32 && output->rank == 1 && output->shape[0] == size &&
         memcmp(output->data, numbers, (size_t)size * sizeof *numbers) == 0;
}

static void check_pieces(const rg_variant_array* array) {
  CHECK(array->rank == 1 && array->shape[0] == 2 && array->num_elements == 2);
  const rg_ragged* second = &array->elements[1];
  CHECK(!second->missing && second->num_splits == 1);
  CHECK(second->nested_splits[0].shape[0] == 2 && ((const int32_t*)second->nested_splits[0].data)[1] == 3);
  CHECK(second->values.dtype == RG_STRING && second->values.rank == 1 && second->values.shape[0] == 3);
  const rg_string* strings = second->values.data;
  CHECK(strings[0].size == 2 && memcmp(strings[0].data, "bc", 2) == 0 && strings[1].size == 0);
  CHECK(strings == (const rg_string*)array->elements[0].values.data + 1);
}

static rg_status there_and_back(const rg_context* context) {
  rg_variant_output pieces;
  memset(&pieces, '#', sizeof pieces);
  const rg_status status = rg_ragged_tensor_to_variant(context, splits, 2, &values, 1, &pieces, message());
  if (status != RG_OK) {
    CHECK(pieces.array.elements == NULL && pieces.blocks[2].data == NULL);
    return status;
  }
  check_pieces(&pieces.array);
  rg_output levels[2], joined;
  memset(levels, '#', sizeof levels);
  const rg_status back =
      rg_ragged_tensor_from_variant(context, &pieces.array, -1, 2, RG_STRING, RG_INT32, levels, &joined, message());
  rg_variant_output_free(context, &pieces);
  CHECK(pieces.array.num_elements == 0 && pieces.blocks[0].data == NULL);
  if (back == RG_OK) {
    CHECK(same(&levels[0], outer_data, 3) && same(&levels[1], inner_data, 4));
    CHECK(joined.shape[0] == 4 && ((const rg_string*)joined.data)[3].data[0] == 'd');
  }
  for (int i = 0; i < 2; ++i) rg_output_free(context, &levels[i]);
  rg_output_free(context, &joined);
  return back;
}

// ---- an allocator that fails when told to ----

typedef struct Heap {
  int requests, fail_at, live;
} Heap;

static void* heap_allocate(void* user, size_t bytes, const rg_output_spec* output) {
  Heap* heap = user;
  (void)output;
  if (heap->requests++ == heap->fail_at) return NULL;
  ++heap->live;
  return aligned_alloc(RG_ALIGNMENT, (bytes / RG_ALIGNMENT + 1) * RG_ALIGNMENT);
}

static void heap_deallocate(void* user, void* pointer, size_t bytes) {
  Heap* heap = user;
  (void)bytes;
  --heap->live;
  free(pointer);
}

static void test_failing_allocations(void) {
  rg_context context;
  rg_context_init(&context, sizeof context);
  context.allocate = heap_allocate;
  context.deallocate = heap_deallocate;
  for (int fail_at = 0;; ++fail_at) {
    Heap heap = {0, fail_at, 0};
    context.user = &heap;
    const rg_status status = there_and_back(&context);
    CHECK(heap.live == 0);
    if (heap.requests <= fail_at) {
      CHECK(status == RG_OK && fail_at > 5);
      return;
    }
    CHECK(status == RG_RESOURCE_EXHAUSTED);
  }
}

static void test_shapes(void) {
  rg_variant_output whole;
  CHECK(rg_ragged_tensor_to_variant(NULL, splits, 2, &values, 0, &whole, message()) == RG_OK);
  CHECK(whole.array.rank == 0 && whole.array.num_elements == 1 && whole.array.elements[0].num_splits == 2);
  rg_output levels[2], joined;
  CHECK(rg_ragged_tensor_from_variant(NULL, &whole.array, 2, 2, RG_STRING, RG_INT32, levels, &joined, NULL) == RG_OK);
  CHECK(same(&levels[1], inner_data, 4));
  for (int i = 0; i < 2; ++i) rg_output_free(NULL, &levels[i]);
  rg_output_free(NULL, &joined);
  rg_variant_output_free(NULL, &whole);
  rg_variant_output_free(NULL, &whole);
  rg_variant_output_free(NULL, NULL);

  const rg_tensor numbers = {inner_data, RG_INT32, RG_CPU, 1, four};
  CHECK(rg_ragged_tensor_to_variant(NULL, NULL, 0, &numbers, 1, &whole, message()) == RG_OK);
  CHECK(whole.array.num_elements == 4 && whole.array.elements[3].values.rank == 0);
  CHECK(rg_ragged_tensor_from_variant(NULL, &whole.array, 0, 0, RG_INT32, RG_INT64, NULL, &joined, message()) == RG_OK);
  CHECK(same(&joined, inner_data, 4));
  rg_output_free(NULL, &joined);
  rg_variant_output_free(NULL, &whole);
}

static void test_errors(void) {
  rg_variant_output pieces;
  CHECK(fails(rg_ragged_tensor_to_variant(NULL, NULL, 2, &values, 1, &pieces, message()), RG_INVALID_ARGUMENT,
              "NULL [rt_nested_splits]"));
  CHECK(fails(rg_ragged_tensor_to_variant(NULL, splits, -1, &values, 1, &pieces, message()), RG_INVALID_ARGUMENT,
              "[rt_nested_splits: got -1]"));
  CHECK(fails(rg_ragged_tensor_to_variant(NULL, splits, 2, &values, 1, NULL, message()), RG_INVALID_ARGUMENT,
              "NULL [encoded_ragged]"));
  rg_tensor bad[] = {splits[0], splits[1]};
  bad[1].rank = 300;
  CHECK(fails(rg_ragged_tensor_to_variant(NULL, bad, 2, &values, 1, &pieces, message()), RG_INVALID_ARGUMENT,
              "[rt_nested_splits[1].rank"));
  CHECK(fails(rg_ragged_tensor_to_variant(NULL, splits, 1, &values, 1, &pieces, message()), RG_INVALID_ARGUMENT,
              "must be the number of ragged values(4) but is 3 [rt_nested_splits[0][2]: expected 4, got 3]"));

  rg_ragged element = {0, 2, bad, values};
  const rg_variant_array array = {0, NULL, 1, &element};
  rg_output levels[2], joined;
  memset(levels, '#', sizeof levels);
#define FROM_VARIANT() \
  rg_ragged_tensor_from_variant(NULL, &array, 2, 2, RG_STRING, RG_INT32, levels, &joined, message())
  CHECK(fails(FROM_VARIANT(), RG_INVALID_ARGUMENT, "no such rank [encoded_ragged.elements[0].nested_splits[1].rank"));
  CHECK(levels[1].data == NULL && levels[1].bytes == 0);
  element.nested_splits = NULL;
  CHECK(fails(FROM_VARIANT(), RG_INVALID_ARGUMENT,
              "no splits [encoded_ragged.elements[0]: expected num_splits of them, got num_splits 2 and"));
  element.num_splits = -1;
  CHECK(fails(FROM_VARIANT(), RG_INVALID_ARGUMENT, "got num_splits -1"));
  element.missing = 1;
  CHECK(fails(FROM_VARIANT(), RG_INVALID_ARGUMENT, "doesn't hold a RaggedTensorVariant"));
  CHECK(fails(rg_ragged_tensor_from_variant(NULL, &array, 2, 2, RG_STRING, RG_INT32, NULL, &joined, message()),
              RG_INVALID_ARGUMENT, "an argument is NULL [output_nested_splits]"));
  CHECK(fails(rg_ragged_tensor_from_variant(NULL, &array, 2, -5, RG_STRING, RG_INT32, NULL, &joined, message()),
              RG_INVALID_ARGUMENT, "Value for attr 'output_ragged_rank' of -5"));
}

int main(void) {
  CHECK(there_and_back(NULL) == RG_OK);
  test_failing_allocations();
  test_shapes();
  test_errors();
  return report();
}
