// Variant arrays through the C interface.
#include "raggrad/capi/test/ragged_operators.h"

// ---- [[["a"], []], [["bc", "", "d"]]]: two rows, three rows in them, four strings ----

static const rg_string words[] = {{"a", 1}, {"bc", 2}, {NULL, 0}, {"d", 1}};
static rg_tensor outer, inner, values;
static const rg_tensor* const splits[] = {&outer, &inner};
static rg_output level0 = RG_INIT(rg_output), level1 = RG_INIT(rg_output), joined = RG_INIT(rg_output);
static rg_output* const levels[] = {&level0, &level1};

static void make_operands(void) {
  outer = tensor(outer_data, RG_INT32, 1, three);
  inner = tensor(inner_data, RG_INT32, 1, four);
  values = tensor(words, RG_STRING, 1, four);
}

static void free_all(void) {
  rg_output_free(NULL, &level0);
  rg_output_free(NULL, &level1);
  rg_output_free(NULL, &joined);
}

static void test_strings(void) {
  rg_variant_output pieces = RG_INIT(rg_variant_output);
  CHECK(rg_ragged_tensor_to_variant(NULL, splits, 2, &values, 1, &pieces, message()) == RG_OK);
  const rg_variant_array* array = pieces.array;
  CHECK(array->struct_size == sizeof *array && array->rank == 1 && array->shape[0] == 2 && array->num_elements == 2);
  const rg_ragged* second = array->elements[1];
  CHECK(second->struct_size == sizeof *second && second->num_splits == 1);
  CHECK(second->nested_splits[0]->shape[0] == 2 && ((const int32_t*)second->nested_splits[0]->data)[1] == 3);
  CHECK(second->values->dtype == RG_STRING && second->values->rank == 1 && second->values->shape[0] == 3);
  const rg_string* strings = second->values->data;
  CHECK(strings[0].size == 2 && memcmp(strings[0].data, "bc", 2) == 0 && strings[1].size == 0);
  CHECK(strings == (const rg_string*)array->elements[0]->values->data + 1);

  CHECK(rg_ragged_tensor_from_variant(NULL, array, -1, 2, RG_STRING, RG_INT32, levels, &joined, message()) == RG_OK);
  rg_variant_output_free(NULL, &pieces);
  CHECK(pieces.array == NULL && pieces.blocks[0].data == NULL && pieces.struct_size == sizeof pieces);
  CHECK(is_vector(&level0, RG_INT32, 3, outer_data) && is_vector(&level1, RG_INT32, 4, inner_data));
  CHECK(joined.shape[0] == 4 && ((const rg_string*)joined.data)[3].data[0] == 'd');
  free_all();
}

static void test_shapes(void) {
  rg_variant_output whole = RG_INIT(rg_variant_output);
  CHECK(rg_ragged_tensor_to_variant(NULL, splits, 2, &values, 0, &whole, message()) == RG_OK);
  CHECK(whole.array->rank == 0 && whole.array->num_elements == 1 && whole.array->elements[0]->num_splits == 2);
  CHECK(rg_ragged_tensor_from_variant(NULL, whole.array, 2, 2, RG_STRING, RG_INT32, levels, &joined, NULL) == RG_OK);
  CHECK(is_vector(&level1, RG_INT32, 4, inner_data));
  free_all();
  rg_variant_output_free(NULL, &whole);
  rg_variant_output_free(NULL, &whole);
  rg_variant_output_free(NULL, NULL);

  CHECK(rg_ragged_tensor_to_variant(NULL, NULL, 0, &inner, 1, &whole, message()) == RG_OK);
  CHECK(whole.array->num_elements == 4 && whole.array->elements[3]->values->rank == 0);
  CHECK(rg_ragged_tensor_from_variant(NULL, whole.array, 0, 0, RG_INT32, RG_INT64, NULL, &joined, message()) == RG_OK);
  CHECK(is_vector(&joined, RG_INT32, 4, inner_data));
  free_all();
  rg_variant_output_free(NULL, &whole);
}

static void test_errors(void) {
  rg_variant_output pieces = RG_INIT(rg_variant_output);
  CHECK(fails(rg_ragged_tensor_to_variant(NULL, NULL, 2, &values, 1, &pieces, message()), RG_INVALID_ARGUMENT,
              "NULL [rt_nested_splits]"));
  CHECK(fails(rg_ragged_tensor_to_variant(NULL, splits, -1, &values, 1, &pieces, message()), RG_INVALID_ARGUMENT,
              "[rt_nested_splits: got -1]"));
  CHECK(fails(rg_ragged_tensor_to_variant(NULL, splits, 2, &values, 1, NULL, message()), RG_INVALID_ARGUMENT,
              "NULL [encoded_ragged]"));
  rg_tensor wrong = inner;
  const rg_tensor* bad[] = {&outer, &wrong};
  wrong.rank = 300;
  CHECK(fails(rg_ragged_tensor_to_variant(NULL, bad, 2, &values, 1, &pieces, message()), RG_INVALID_ARGUMENT,
              "[rt_nested_splits[1].rank"));
  CHECK(fails(rg_ragged_tensor_to_variant(NULL, splits, 1, &values, 1, &pieces, message()), RG_INVALID_ARGUMENT,
              "must be the number of ragged values(4) but is 3 [rt_nested_splits[0][2]: expected 4, got 3]"));

  rg_ragged element = {sizeof element, &values, bad, 2};
  const rg_ragged* elements[] = {&element};
  const rg_variant_array array = {sizeof array, 0, NULL, 1, elements};
  level0 = level1 = used_output();
#define FROM_VARIANT() \
  rg_ragged_tensor_from_variant(NULL, &array, 2, 2, RG_STRING, RG_INT32, levels, &joined, message())
  CHECK(fails(FROM_VARIANT(), RG_INVALID_ARGUMENT, "no such rank [encoded_ragged.elements[0].nested_splits[1].rank"));
  CHECK(owns_nothing(&level0) && owns_nothing(&level1));
  bad[1] = NULL;
  CHECK(fails(FROM_VARIANT(), RG_INVALID_ARGUMENT, "NULL [encoded_ragged.elements[0].nested_splits[1]]"));
  element.nested_splits = NULL;
  CHECK(fails(FROM_VARIANT(), RG_INVALID_ARGUMENT,
              "no splits [encoded_ragged.elements[0]: expected num_splits of them, got num_splits 2 and"));
  element.num_splits = -1;
  CHECK(fails(FROM_VARIANT(), RG_INVALID_ARGUMENT, "got num_splits -1"));
  elements[0] = NULL;
  CHECK(fails(FROM_VARIANT(), RG_INVALID_ARGUMENT, "doesn't hold a RaggedTensorVariant"));
  CHECK(fails(rg_ragged_tensor_from_variant(NULL, &array, 2, 2, RG_STRING, RG_INT32, NULL, &joined, message()),
              RG_INVALID_ARGUMENT, "an argument is NULL [output_nested_splits]"));
  CHECK(fails(rg_ragged_tensor_from_variant(NULL, &array, 2, -5, RG_STRING, RG_INT32, NULL, &joined, message()),
              RG_INVALID_ARGUMENT, "Value for attr 'output_ragged_rank' of -5"));
  rg_output *const twice[] = {&level0, &level0}, *const both[] = {&level0, &joined}, *const none[] = {&level0, NULL};
#define FROM_VARIANT_INTO(outputs) \
  rg_ragged_tensor_from_variant(NULL, &array, 2, 2, RG_STRING, RG_INT32, outputs, &joined, message())
  CHECK(fails(FROM_VARIANT_INTO(twice), RG_INVALID_ARGUMENT, "an output is given twice [output_nested_splits[1]]"));
  CHECK(owns_nothing(&level0));
  CHECK(fails(FROM_VARIANT_INTO(both), RG_INVALID_ARGUMENT, "an output is given twice [output_nested_splits[1]]"));
  CHECK(fails(FROM_VARIANT_INTO(none), RG_INVALID_ARGUMENT, "an output is NULL [output_nested_splits[1]]"));
}

int main(void) {
  make_operands();
  test_strings();
  test_shapes();
  test_errors();
  return report();
}
