// Sizes of structs that are wrong, or of another version of the header.
#include "raggrad/capi/raggrad_c_batching.h"
#include "raggrad/capi/test/ragged_operators.h"

// Every struct that a program fills. A test spoils one of them and calls a function that reads it.
static rg_context context = RG_INIT(rg_context);
static rg_tensor grad, indices, segment_ids, dim0, outer_splits, inner_splits, numbers;
static rg_mutable_tensor table;
static rg_output first = RG_INIT(rg_output), second = RG_INIT(rg_output), third = RG_INIT(rg_output);
static rg_indexed_slices slices = {sizeof slices, &grad, &indices, 7};
static rg_row_update sgd;
static rg_ragged element = {sizeof element, &numbers, NULL, 0};
static const rg_ragged* const elements[] = {&element};
static rg_variant_array array = {sizeof array, 0, NULL, 1, elements};
static rg_variant_output pieces = RG_INIT(rg_variant_output);
static rg_segment_plan* plan;
static rg_segment_plan_sizes sizes = RG_INIT(rg_segment_plan_sizes);
static rg_output* const list[] = {&first, &second};
static rg_resource_limits limits;

static float rows[14];

static void make_structs(void) {
  grad = tensor(slice_data, RG_FLOAT32, 2, three_by_two);
  indices = tensor(index_data, RG_INT32, 1, three);
  segment_ids = tensor(segment_data, RG_INT64, 1, three);
  dim0 = tensor(&dim0_data, RG_INT32, 0, NULL);
  outer_splits = tensor(outer_data, RG_INT32, 1, three);
  inner_splits = tensor(inner_data, RG_INT32, 1, four);
  numbers = tensor(leaves, RG_FLOAT32, 1, four);
  const rg_mutable_tensor t = {sizeof t, rows, RG_FLOAT32, RG_CPU, 0, 2, seven_by_two};
  table = t;
  rg_row_update_init(&sgd, sizeof sgd, RG_SGD, 1);
  rg_resource_limits_init(&limits, sizeof limits);
  CHECK(rg_segment_plan_make(NULL, &indices, &segment_ids, 7, 3, &plan, message()) == RG_OK);
}

static rg_status gradient_v2(void) {
  return rg_sparse_segment_grad_v2(&context, RG_SUM, &grad, &indices, &segment_ids, &dim0, &first, &second, message());
}
static rg_status apply_slices(void) { return rg_indexed_slices_apply(NULL, &slices, &sgd, &table, message()); }
static rg_status to_variant(void) {
  const rg_tensor* const splits[] = {&outer_splits, &inner_splits};
  return rg_ragged_tensor_to_variant(NULL, splits, 2, &numbers, 0, &pieces, message());
}
static rg_status from_variant(void) {
  return rg_ragged_tensor_from_variant(NULL, &array, 0, 0, RG_FLOAT32, RG_INT32, NULL, &third, message());
}
static rg_status from_variant_list(void) {
  return rg_ragged_tensor_from_variant(NULL, &array, 0, 2, RG_FLOAT32, RG_INT32, list, &third, message());
}
static rg_status get_sizes(void) { return rg_segment_plan_get_sizes(plan, &sizes, message()); }
static rg_status make_runtime(void) {
  rg_batching_runtime* runtime = NULL;
  const rg_status status = rg_batching_runtime_create(&context, &limits, &runtime, message());
  rg_batching_runtime_destroy(runtime);
  return status;
}

static void free_all(void) {
  rg_output_free(NULL, &first);
  rg_output_free(NULL, &second);
  rg_output_free(NULL, &third);
  rg_variant_output_free(NULL, &pieces);
}

static void refuses_wrong_sizes(size_t* struct_size, rg_status (*call)(void), const char* place_of_fault) {
  const size_t right = *struct_size;
  const size_t wrong[] = {0, 1, sizeof(size_t), right - 1, 4097, SIZE_MAX};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    *struct_size = wrong[i];
    CHECK(fails(call(), RG_INVALID_ARGUMENT, "a struct does not say its size ["));
    CHECK(fails(call(), RG_INVALID_ARGUMENT, place_of_fault));
    *struct_size = right;
    free_all();
  }
}

static void test_sizes(void) {
  refuses_wrong_sizes(&context.struct_size, gradient_v2, "[context.struct_size: expected ");
  refuses_wrong_sizes(&grad.struct_size, gradient_v2, "[grad.struct_size: expected 40 to 4096 bytes, got ");
  refuses_wrong_sizes(&dim0.struct_size, gradient_v2, "[dense_output_dim0.struct_size: ");
  refuses_wrong_sizes(&first.struct_size, gradient_v2, "[output 0.struct_size: ");
  refuses_wrong_sizes(&second.struct_size, gradient_v2, "[output 1.struct_size: ");
  refuses_wrong_sizes(&slices.struct_size, apply_slices, "[slices.struct_size: ");
  refuses_wrong_sizes(&indices.struct_size, apply_slices, "[slices.indices.struct_size: ");
  refuses_wrong_sizes(&sgd.struct_size, apply_slices, "[update.struct_size: ");
  refuses_wrong_sizes(&table.struct_size, apply_slices, "[table.struct_size: ");
  refuses_wrong_sizes(&pieces.struct_size, to_variant, "[encoded_ragged.struct_size: ");
  refuses_wrong_sizes(&inner_splits.struct_size, to_variant, "[rt_nested_splits[1].struct_size: ");
  refuses_wrong_sizes(&array.struct_size, from_variant, "[encoded_ragged.struct_size: ");
  refuses_wrong_sizes(&element.struct_size, from_variant, "[encoded_ragged.elements[0].struct_size: ");
  refuses_wrong_sizes(&second.struct_size, from_variant_list, "[output_nested_splits[1].struct_size: ");
  refuses_wrong_sizes(&sizes.struct_size, get_sizes, "[sizes.struct_size: ");
  refuses_wrong_sizes(&limits.struct_size, make_runtime, "[limits.struct_size: ");
  CHECK(gradient_v2() == RG_OK && apply_slices() == RG_OK && to_variant() == RG_OK && from_variant() == RG_OK &&
        get_sizes() == RG_OK && make_runtime() == RG_OK);
  free_all();

  // A message has nowhere to go if its own struct is wrong.
  char untouched[] = "####";
  rg_error error = {sizeof error - 1, untouched, sizeof untouched};
  CHECK(rg_cuda_status(&error) == RG_INVALID_ARGUMENT && strcmp(untouched, "####") == 0);
}

// An output with a wrong size is neither written to nor freed.
static void test_outputs_are_left_alone(void) {
  rg_output output = used_output();
  const rg_output before = output;
  output.struct_size = 17;
  CHECK(rg_copy_tensor(NULL, &grad, RG_CPU, 0, &output, message()) == RG_INVALID_ARGUMENT);
  rg_output_free(NULL, &output);
  output.struct_size = before.struct_size;
  CHECK(memcmp(&output, &before, sizeof output) == 0);

  // Nor does a wrong context free anything.
  rg_context wrong = RG_INIT(rg_context);
  wrong.struct_size = 1;
  output.struct_size = sizeof output;
  CHECK(rg_copy_tensor(NULL, &grad, RG_CPU, 0, &output, message()) == RG_OK);
  rg_output_free(&wrong, &output);
  CHECK(output.data != NULL);
  rg_output_free(NULL, &output);
  CHECK(owns_nothing(&output));
}

// A program that knows more members may leave them zero, but not use them.
static void test_newer_programs(void) {
  struct {
    rg_context known;
    int64_t unknown;
  } newer_context = {RG_INIT(rg_context), 0};
  struct {
    rg_tensor known;
    int64_t unknown;
  } newer_tensor = {grad, 0};
  struct {
    rg_output known;
    int64_t unknown;
  } newer_output = {used_output(), 77};
  newer_context.known.struct_size = sizeof newer_context;
  newer_tensor.known.struct_size = sizeof newer_tensor;
  newer_output.known.struct_size = sizeof newer_output;
#define COPY() rg_copy_tensor(&newer_context.known, &newer_tensor.known, RG_CPU, 0, &newer_output.known, message())
  CHECK(COPY() == RG_OK && newer_output.unknown == 77 && newer_output.known.struct_size == sizeof newer_output);
  CHECK(holds(&newer_output.known, RG_FLOAT32, 2, three_by_two, slice_data));
  rg_output_free(&newer_context.known, &newer_output.known);
  CHECK(newer_output.known.data == NULL && newer_output.unknown == 77);
  newer_context.unknown = 1;
  CHECK(fails(COPY(), RG_INVALID_ARGUMENT, "a member that this version of the library does not know [context, byte "));
  newer_context.unknown = 0;
  newer_tensor.unknown = 1;
  CHECK(fails(COPY(), RG_INVALID_ARGUMENT, "does not know [from, byte 40: expected 0, got 1]"));
}

int main(void) {
  make_structs();
  test_sizes();
  test_outputs_are_left_alone();
  test_newer_programs();
  rg_segment_plan_destroy(plan);
  return report();
}
