// The operators through the C interface: messages, arguments and contexts that are refused.
#include "raggrad/capi/test/heap.h"
#include "raggrad/capi/test/ragged_operators.h"

static rg_output first = RG_INIT(rg_output), second = RG_INIT(rg_output);

static void test_messages(void) {
  const rg_tensor nothing = tensor(NULL, RG_FLOAT32, 1, three);
  const char* whole = "rg_sparse_fill_empty_rows_grad: an argument is NULL [reverse_index_map]";
  for (size_t capacity = 0; capacity <= strlen(whole) + 2; ++capacity) {
    CHECK(rg_sparse_fill_empty_rows_grad(NULL, NULL, &nothing, &first, &second, message_of(capacity)) ==
          RG_INVALID_ARGUMENT);
    const size_t kept = capacity == 0 ? 0 : capacity - 1 < strlen(whole) ? capacity - 1 : strlen(whole);
    CHECK(strncmp(text, whole, kept) == 0);
    CHECK(text[kept] == (capacity == 0 ? '#' : '\0') && text[kept + 1] == '#');
  }
  rg_error no_buffer = {sizeof no_buffer, NULL, 10};
  CHECK(rg_sparse_fill_empty_rows_grad(NULL, NULL, &nothing, &first, &second, &no_buffer) == RG_INVALID_ARGUMENT);

  // A message is not cut inside a character.
  const rg_tensor map = tensor(map_data, RG_INT64, 1, two), grad = tensor(fill_data, RG_INT16, 1, four);
  rg_context context = RG_INIT(rg_context);
  context.isa = "\xc3\xa4\xc3\xa4\xc3\xa4";
  const size_t start = strlen("rg_sparse_fill_empty_rows_grad: instruction set '");
  for (size_t capacity = start + 1; capacity < start + 8; ++capacity) {
    CHECK(rg_sparse_fill_empty_rows_grad(&context, &map, &grad, &first, &second, message_of(capacity)) ==
          RG_INVALID_ARGUMENT);
    CHECK(strlen(text) == start + (capacity - 1 - start) / 2 * 2);
  }
}

static void test_bad_arguments(void) {
  static const float data[] = {1, 2};
  static const int64_t negative[] = {-2};
  const rg_tensor good = tensor(data, RG_FLOAT32, 1, two);
  const rg_tensor map = tensor(map_data, RG_INT64, 1, one);
  rg_tensor bad = good;
#define EXPECT_BAD(part)                                                                                               \
  CHECK(                                                                                                               \
      fails(rg_sparse_fill_empty_rows_grad(NULL, &map, &bad, &first, &second, message()), RG_INVALID_ARGUMENT, part)); \
  CHECK(owns_nothing(&first) && owns_nothing(&second));                                                                \
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
  bad.device_kind = 0;
  EXPECT_BAD("no such device [grad_values.device_kind: expected RG_CPU (1) or RG_CUDA (2), got 0]");
  bad.device_kind = 13;
  EXPECT_BAD("got 13]");
  bad.device_number = 1;
  EXPECT_BAD("no such device [grad_values.device_number: expected 0 for RG_CPU, got 1]");
  bad.device_kind = RG_CUDA;
  bad.device_number = -1;
  EXPECT_BAD("no such device [grad_values.device_number: expected at least 0, got -1]");
  bad.device_kind = RG_CUDA;
  EXPECT_BAD("operands are on different devices [");
  bad.data = NULL;
  EXPECT_BAD("no data [grad_values.data: expected elements of shape [2], got NULL]");
  bad.dtype = RG_STRING;
  EXPECT_BAD("grad_values has dtype string");
  bad = good;
  bad.data = (const char*)data + 2;
  EXPECT_BAD("an operand is not aligned [grad_values: expected an address that is a multiple of 4, got one that is 2");

  CHECK(fails(rg_sparse_fill_empty_rows_grad(NULL, &map, &good, NULL, &second, message()), RG_INVALID_ARGUMENT,
              "an output is NULL [output 0]"));
  CHECK(fails(rg_sparse_fill_empty_rows_grad(NULL, &map, &good, &first, NULL, message()), RG_INVALID_ARGUMENT,
              "an output is NULL [output 1]"));
  CHECK(fails(rg_sparse_fill_empty_rows_grad(NULL, &map, &good, &first, &first, message()), RG_INVALID_ARGUMENT,
              "an output is given twice [output 1]"));
  CHECK(fails(rg_ragged_fill_empty_rows_grad(NULL, NULL, NULL, NULL, NULL, message()), RG_INVALID_ARGUMENT,
              "rg_ragged_fill_empty_rows_grad: an output is NULL"));
  CHECK(rg_sparse_segment_grad_v2(NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == RG_INVALID_ARGUMENT);
  CHECK(rg_sparse_segment_grad(NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL) == RG_INVALID_ARGUMENT);
  CHECK(rg_sparse_slice_grad(NULL, NULL, NULL, NULL, NULL, NULL, NULL) == RG_INVALID_ARGUMENT);
  CHECK(rg_ragged_tensor_to_variant_grad(NULL, NULL, NULL, NULL, 0, NULL, NULL) == RG_INVALID_ARGUMENT);
  for (int32_t combiner = -1; combiner <= 3; combiner += 4) {
    CHECK(fails(rg_sparse_segment_grad(NULL, combiner, &good, &map, &map, &map, &first, message()), RG_INVALID_ARGUMENT,
                "no such combiner"));
  }
  CHECK(fails(rg_sparse_slice_grad(NULL, &good, &map, NULL, &map, &first, message()), RG_INVALID_ARGUMENT,
              "an argument is NULL [input_start]"));
}

static void test_bad_variants(void) {
  const rg_tensor splits = tensor(splits_data, RG_INT64, 1, four);
  const rg_tensor dense = tensor(&dense_rows, RG_INT32, 1, one);
  rg_tensor values = tensor(NULL, RG_INT8, 1, four);
  rg_ragged element = {sizeof element, &values, NULL, 0};
  const rg_ragged* elements[] = {NULL, &element};
  rg_output out = RG_INIT(rg_output);
  rg_variant_array array = {sizeof array, 1, two, 2, elements};
#define EXPECT_BAD_VARIANT(part)                                                                         \
  CHECK(fails(rg_ragged_tensor_to_variant_grad(NULL, &array, &splits, &dense, RG_INT8, &out, message()), \
              RG_INVALID_ARGUMENT, part));                                                               \
  CHECK(owns_nothing(&out))
  EXPECT_BAD_VARIANT("no data [encoded_ragged_grad.elements[1].values.data: expected elements of shape [4]");
  values.dtype = -1;
  EXPECT_BAD_VARIANT("no such dtype [encoded_ragged_grad.elements[1].values.dtype");
  element.values = NULL;
  EXPECT_BAD_VARIANT("an argument is NULL [encoded_ragged_grad.elements[1].values]");
  elements[1] = NULL;
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

  const rg_variant_array empty = {sizeof empty, 1, (const int64_t[]){0}, 0, NULL};
  const rg_tensor no_values = tensor((const int32_t[]){0, 3}, RG_INT32, 1, two);
  CHECK(rg_ragged_tensor_to_variant_grad(NULL, &empty, &splits, &no_values, RG_INT8, &out, NULL) == RG_OK);
  CHECK(out.data == NULL && out.bytes == 0 && out.rank == 2 && out.shape[0] == 0 && out.shape[1] == 3);
  rg_output_free(NULL, &out);
}

static void never_called(void* user, int64_t tasks, rg_task task, void* argument) {
  (void)user, (void)tasks, (void)task, (void)argument;
  CHECK(!"parallel_for of a context that is refused is called");
}

static rg_status small_call(const rg_context* context) {
  const rg_tensor map = tensor(map_data, RG_INT64, 1, two), grad = tensor(fill_data, RG_INT16, 1, four);
  return rg_sparse_fill_empty_rows_grad(context, &map, &grad, &first, &second, message());
}

static void test_context(void) {
  const rg_context defaults = RG_INIT(rg_context);
  rg_context context = defaults;
#define EXPECT_BAD_CONTEXT(part)                                 \
  CHECK(fails(small_call(&context), RG_INVALID_ARGUMENT, part)); \
  context = defaults
  context.allocate = heap_allocate;
  EXPECT_BAD_CONTEXT("context has one of allocate and deallocate [context: expected both or neither]");
  context.deallocate = heap_deallocate;
  EXPECT_BAD_CONTEXT("expected both or neither");
  context.device_allocate = heap_device_allocate;
  EXPECT_BAD_CONTEXT("context has one of device_allocate and device_deallocate [context: expected both or neither]");
  context.device_deallocate = heap_device_deallocate;
  EXPECT_BAD_CONTEXT("expected both or neither");
  context.num_workers = 2;
  EXPECT_BAD_CONTEXT("expected 0 or 1 without parallel_for, got 2]");
  context.parallel_for = never_called;
  EXPECT_BAD_CONTEXT("expected at least 1 with parallel_for, got 0]");
  context.accumulation = 4;
  EXPECT_BAD_CONTEXT("no such accumulation");
  context.isa = "z80";
  EXPECT_BAD_CONTEXT("instruction set 'z80' is not available [context.isa]");

  for (int32_t accumulation = 0; accumulation <= RG_ACCUMULATION_REPRODUCIBLE; ++accumulation) {
    rg_output out[kMostOutputs];
    context.accumulation = accumulation;
    CHECK(run_operator(&segment_operators[0], &context, out) == RG_OK);
    free_outputs(&context, out);
  }
}

static void test_devices(void) {
  static const float data[] = {1, 2};
  static const rg_string word = {"a", 1};
  const rg_tensor numbers = tensor(data, RG_FLOAT32, 1, two), string = tensor(&word, RG_STRING, 0, NULL);
  CHECK(rg_copy_tensor(NULL, &numbers, RG_CPU, 0, &first, message()) == RG_OK);
  CHECK(is_vector(&first, RG_FLOAT32, 2, data) && first.data != data);
  rg_output_free(NULL, &first);
  CHECK(fails(rg_copy_tensor(NULL, &string, RG_CPU, 0, &first, message()), RG_INVALID_ARGUMENT, "only numbers"));
  CHECK(fails(rg_copy_tensor(NULL, &numbers, 3, 0, &first, message()), RG_INVALID_ARGUMENT,
              "rg_copy_tensor: no such device [output.device_kind: expected RG_CPU (1) or RG_CUDA (2), got 3]"));
  CHECK(fails(rg_copy_tensor(NULL, &numbers, RG_CUDA, -2, &first, message()), RG_INVALID_ARGUMENT,
              "[output.device_number: expected at least 0, got -2]"));
  CHECK(fails(rg_copy_tensor(NULL, NULL, RG_CPU, 0, &first, message()), RG_INVALID_ARGUMENT, "NULL [from]"));
  CHECK(fails(rg_copy_tensor(NULL, &numbers, RG_CPU, 0, NULL, message()), RG_INVALID_ARGUMENT, "an output is NULL"));

  Gradient g = gradient();
  g.grad.device_kind = g.segment_ids.device_kind = RG_CUDA;
  g.grad.device_number = g.segment_ids.device_number = 3;
  CHECK(fails(rg_sparse_segment_grad(NULL, RG_SUM, &g.grad, &g.indices, &g.segment_ids, &g.dim0, &first, message()),
              RG_INVALID_ARGUMENT,
              "operands are on different devices [indices: expected that of grad (cuda:3), got host memory]"));
  g.indices.device_kind = RG_CUDA;
  g.indices.device_number = 2;
  CHECK(fails(rg_sparse_segment_grad(NULL, RG_SUM, &g.grad, &g.indices, &g.segment_ids, &g.dim0, &first, message()),
              RG_INVALID_ARGUMENT, "[indices: expected that of grad (cuda:3), got cuda:2]"));

  if (rg_cuda_status(message()) == RG_OK) return;
  CHECK(fails(rg_cuda_status(message()), RG_UNIMPLEMENTED, "there are no kernels for this device"));
  CHECK(rg_cuda_status(NULL) == RG_UNIMPLEMENTED);
  CHECK(fails(rg_copy_tensor(NULL, &numbers, RG_CUDA, 0, &first, message()), RG_UNIMPLEMENTED, "no kernels"));
  rg_output lost = RG_INIT(rg_output);
  lost.data = (void*)data;
  lost.device_kind = RG_CUDA;
  rg_output_free(NULL, &lost);  // it cannot be given back, and is left as it is
  CHECK(lost.data == data);
}

int main(void) {
  test_messages();
  test_bad_arguments();
  test_bad_variants();
  test_context();
  test_devices();
  return report();
}
