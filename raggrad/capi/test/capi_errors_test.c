// The gradients through the C interface: messages, arguments and contexts that are refused.
#include "raggrad/capi/test/gradients.h"

static void test_messages(void) {
  Outputs out;
  const rg_tensor nothing = tensor(NULL, RG_FLOAT32, 1, three);
  const char* whole = "rg_sparse_fill_empty_rows_grad: an argument is NULL [reverse_index_map]";
  for (size_t capacity = 0; capacity <= strlen(whole) + 2; ++capacity) {
    CHECK(rg_sparse_fill_empty_rows_grad(NULL, NULL, &nothing, &out.first, &out.second, message_of(capacity)) ==
          RG_INVALID_ARGUMENT);
    const size_t kept = capacity == 0 ? 0 : capacity - 1 < strlen(whole) ? capacity - 1 : strlen(whole);
    CHECK(strncmp(text, whole, kept) == 0);
    CHECK(text[kept] == (capacity == 0 ? '#' : '\0') && text[kept + 1] == '#');
  }
  rg_error no_buffer = {NULL, 10};
  CHECK(rg_sparse_fill_empty_rows_grad(NULL, NULL, &nothing, &out.first, &out.second, &no_buffer) ==
        RG_INVALID_ARGUMENT);

  // A message is not cut inside a character.
  rg_context context;
  rg_context_init(&context, sizeof context);
  context.isa = "\xc3\xa4\xc3\xa4\xc3\xa4";
  const size_t start = strlen("rg_sparse_fill_empty_rows_grad: instruction set '");
  for (size_t capacity = start + 1; capacity < start + 8; ++capacity) {
    CHECK(sparse_fill(&context, &out, message_of(capacity)) == RG_INVALID_ARGUMENT);
    CHECK(strlen(text) == start + (capacity - 1 - start) / 2 * 2);
  }
}

static void test_bad_arguments(void) {
  static const float data[] = {1, 2};
  static const int64_t negative[] = {-2};
  const rg_tensor good = tensor(data, RG_FLOAT32, 1, two);
  const rg_tensor map = tensor(map_data, RG_INT64, 1, one);
  rg_tensor bad = good;
  Outputs out;
#define EXPECT_BAD(part)                                                                            \
  CHECK(fails(rg_sparse_fill_empty_rows_grad(NULL, &map, &bad, &out.first, &out.second, message()), \
              RG_INVALID_ARGUMENT, part));                                                          \
  CHECK(owns_nothing(&out.first) && owns_nothing(&out.second));                                     \
  bad = good
  bad.rank = -1;
  EXPECT_BAD("no such rank [grad_values.rank: expected 0 to 254, got -1]");
  bad.rank = RG_MAX_RANK + 1;
  EXPECT_BAD("got 255]");
  bad.shape = NULL;
  EXPECT_BAD("no shape [grad_values.shape: expected 1 dimensions, got NULL]");
  bad.shape = negative;
  EXPECT_BAD("a dimension is negative [grad_values.shape[0]: expected at least 0, got -2]");
  bad.dtype = 99;
  EXPECT_BAD("no such dtype [grad_values.dtype: expected the number of a dtype, got 99]");
  bad.dtype = 0;
  EXPECT_BAD("no such dtype");
  bad.device = 0;
  EXPECT_BAD("no such device [grad_values.device: expected RG_CPU (1) or RG_CUDA (2), got 0]");
  bad.data = NULL;
  EXPECT_BAD("no data [grad_values.data: expected elements of shape [2], got NULL]");
  bad.dtype = RG_STRING;
  EXPECT_BAD("grad_values has dtype string");
  bad = good;
  bad.device = RG_CUDA;
  CHECK(fails(rg_sparse_fill_empty_rows_grad(NULL, &map, &bad, &out.first, &out.second, message()), RG_UNIMPLEMENTED,
              "rg_sparse_fill_empty_rows_grad: operands in device memory are for C++ only "
              "[grad_values.device: expected RG_CPU (1), got RG_CUDA (2)]"));
  bad = good;
  bad.data = (const char*)data + 2;
  EXPECT_BAD("an operand is not aligned [grad_values: expected an address that is a multiple of 4, got one that is 2");

  CHECK(fails(rg_sparse_fill_empty_rows_grad(NULL, &map, &good, NULL, &out.second, message()), RG_INVALID_ARGUMENT,
              "an output is NULL [output 0]"));
  CHECK(fails(rg_sparse_fill_empty_rows_grad(NULL, &map, &good, &out.first, NULL, message()), RG_INVALID_ARGUMENT,
              "an output is NULL [output 1]"));
  CHECK(fails(rg_sparse_fill_empty_rows_grad(NULL, &map, &good, &out.first, &out.first, message()), RG_INVALID_ARGUMENT,
              "an output is given twice [output 1]"));
  CHECK(fails(rg_ragged_fill_empty_rows_grad(NULL, NULL, NULL, NULL, NULL, message()), RG_INVALID_ARGUMENT,
              "rg_ragged_fill_empty_rows_grad: an output is NULL"));
  CHECK(rg_sparse_segment_grad_v2(NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == RG_INVALID_ARGUMENT);
  CHECK(rg_sparse_segment_grad(NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL) == RG_INVALID_ARGUMENT);
  CHECK(rg_sparse_slice_grad(NULL, NULL, NULL, NULL, NULL, NULL, NULL) == RG_INVALID_ARGUMENT);
  CHECK(rg_ragged_tensor_to_variant_grad(NULL, NULL, NULL, NULL, 0, NULL, NULL) == RG_INVALID_ARGUMENT);
  for (int32_t combiner = -1; combiner <= 3; combiner += 4) {
    CHECK(fails(rg_sparse_segment_grad(NULL, combiner, &good, &map, &map, &map, &out.first, message()),
                RG_INVALID_ARGUMENT, "no such combiner"));
  }
  CHECK(fails(rg_sparse_slice_grad(NULL, &good, &map, NULL, &map, &out.first, message()), RG_INVALID_ARGUMENT,
              "an argument is NULL [input_start]"));
}

static void test_bad_variants(void) {
  const rg_tensor splits = tensor(splits_data, RG_INT64, 1, four);
  const rg_tensor dense = tensor(&dense_data, RG_INT32, 1, one);
  rg_ragged elements[2];
  rg_output out;
  memset(elements, 0, sizeof elements);
  elements[0].missing = 1;
  elements[1].values = tensor(NULL, RG_INT8, 1, four);
  rg_variant_array array = {1, two, 2, elements};
#define EXPECT_BAD_VARIANT(part)                                                                         \
  CHECK(fails(rg_ragged_tensor_to_variant_grad(NULL, &array, &splits, &dense, RG_INT8, &out, message()), \
              RG_INVALID_ARGUMENT, part));                                                               \
  CHECK(owns_nothing(&out))
  EXPECT_BAD_VARIANT("no data [encoded_ragged_grad.elements[1].values.data: expected elements of shape [4]");
  elements[1].values.dtype = -1;
  EXPECT_BAD_VARIANT("no such dtype [encoded_ragged_grad.elements[1].values.dtype");
  elements[1].missing = 1;
  EXPECT_BAD_VARIANT("the elements do not fill dense_values_shape [5]");
  array.num_elements = 1;
  EXPECT_BAD_VARIANT("the shape of encoded_ragged_grad does not fit its elements");
  array.num_elements = -1;
  EXPECT_BAD_VARIANT("no elements [encoded_ragged_grad: expected num_elements of them, got num_elements -1]");
  array.num_elements = 2;
  array.elements = NULL;
  EXPECT_BAD_VARIANT("got num_elements 2 and NULL]");
  array.rank = 300;
  EXPECT_BAD_VARIANT("no such rank [encoded_ragged_grad.rank");
  CHECK(fails(rg_ragged_tensor_to_variant_grad(NULL, NULL, &splits, &dense, RG_INT8, &out, message()),
              RG_INVALID_ARGUMENT, "an argument is NULL [encoded_ragged_grad]"));

  const rg_variant_array empty = {1, (const int64_t[]){0}, 0, NULL};
  const rg_tensor no_values = tensor((const int32_t[]){0, 3}, RG_INT32, 1, two);
  CHECK(rg_ragged_tensor_to_variant_grad(NULL, &empty, &splits, &no_values, RG_INT8, &out, NULL) == RG_OK);
  CHECK(out.data == NULL && out.bytes == 0 && out.rank == 2 && out.shape[0] == 0 && out.shape[1] == 3);
  rg_output_free(NULL, &out);
}

static void never_called(void* user, int64_t tasks, rg_task task, void* argument) {
  (void)user, (void)tasks, (void)task, (void)argument;
  CHECK(!"parallel_for of a context that is refused is called");
}

static void test_context(void) {
  Outputs out;
  rg_context context;
  Heap heap;
#define EXPECT_BAD_CONTEXT(part)                                             \
  CHECK(fails(slice(&context, &out, message()), RG_INVALID_ARGUMENT, part)); \
  rg_context_init(&context, sizeof context)
  rg_context_init(NULL, 8);
  rg_context_init(&context, sizeof context);
  CHECK(context.struct_size == sizeof context);
  context.struct_size = 0;
  EXPECT_BAD_CONTEXT("context is not initialised");
  context.struct_size = (size_t)-1;
  EXPECT_BAD_CONTEXT("context is not initialised");
  context.allocate = heap_allocate;
  EXPECT_BAD_CONTEXT("expected both or neither");
  context.deallocate = heap_deallocate;
  EXPECT_BAD_CONTEXT("expected both or neither");
  context.num_workers = 2;
  EXPECT_BAD_CONTEXT("expected 0 or 1 without parallel_for, got 2]");
  context.parallel_for = never_called;
  EXPECT_BAD_CONTEXT("expected at least 1 with parallel_for, got 0]");
  context.accumulation = 3;
  EXPECT_BAD_CONTEXT("no such accumulation");
  context.isa = "z80";
  EXPECT_BAD_CONTEXT("instruction set 'z80' is not available [context.isa]");

  for (int32_t accumulation = 0; accumulation <= RG_ACCUMULATION_FAST; ++accumulation) {
    context.accumulation = accumulation;
    CHECK(segment_v2(&context, &out, NULL) == RG_OK);
    segment_v2_check(&out);
    free_outputs(&context, &out);
  }

  // A program that knows fewer fields: those behind its struct_size are not read.
  context = heap_context(&heap);
  context.num_workers = -5;
  context.struct_size = offsetof(rg_context, parallel_for);
  CHECK(slice(&context, &out, message()) == RG_OK && heap.live == 1);
  rg_output_free(&context, &out.first);
  CHECK(heap.live == 0);

  // A program that knows more fields may leave them zero, but not use them.
  struct {
    rg_context known;
    int64_t unknown;
  } newer;
  rg_context_init(&newer.known, sizeof newer);
  CHECK(slice(&newer.known, &out, message()) == RG_OK);
  rg_output_free(&newer.known, &out.first);
  newer.unknown = 1;
  CHECK(fails(slice(&newer.known, &out, message()), RG_INVALID_ARGUMENT, "does not know [context, byte"));
}

int main(void) {
  test_messages();
  test_bad_arguments();
  test_bad_variants();
  test_context();
  return report();
}
