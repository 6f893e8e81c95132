// The forward operators through the C interface.
#include "raggrad/capi/test/testing.h"

static const int64_t two[] = {2}, three[] = {3}, three_by_two[] = {3, 2};

static int holds(const rg_output* output, int32_t dtype, int32_t rank, const int64_t* shape, const void* values) {
  int64_t count = 1;
  for (int32_t i = 0; i < rank; ++i) count *= shape[i];
  return output->dtype == dtype && output->rank == rank &&
         memcmp(output->shape, shape, (size_t)rank * sizeof *shape) == 0 &&
         memcmp(output->data, values, (size_t)count * rg_dtype_size(dtype)) == 0;
}

// ---- the operators, each with small operands; on success the first `count` outputs are there ----

typedef struct Operator {
  rg_status (*run)(const rg_context* context, rg_output* out);
  void (*check)(const rg_output* out);
  int count;
} Operator;

static const float data[] = {1, 2, 4, 8, 16, 32};
static const int32_t ids[] = {2, 0, 2}, segments[] = {0, 0, 2};

static rg_status segment(const rg_context* context, rg_output* out) {
  const rg_tensor table = tensor(data, RG_FLOAT32, 2, three_by_two), indices = tensor(ids, RG_INT32, 1, three),
                  segment_ids = tensor(segments, RG_INT32, 1, three);
  return rg_sparse_segment(context, RG_MEAN, &table, &indices, &segment_ids, out, message());
}
static void segment_check(const rg_output* out) {
  static const float want[] = {8.5, 17, 0, 0, 16, 32};
  CHECK(holds(out, RG_FLOAT32, 2, three_by_two, want));
}

static rg_status segment_with_num_segments(const rg_context* context, rg_output* out) {
  static const int64_t four = 4;
  const rg_tensor table = tensor(data, RG_FLOAT32, 1, three), indices = tensor(ids, RG_INT32, 1, three),
                  segment_ids = tensor(segments, RG_INT32, 1, three), count = tensor(&four, RG_INT64, 0, NULL);
  return rg_sparse_segment_with_num_segments(context, RG_SUM, &table, &indices, &segment_ids, &count, out, message());
}
static void segment_with_num_segments_check(const rg_output* out) {
  static const float want[] = {5, 0, 4, 0};
  static const int64_t four[] = {4};
  CHECK(holds(out, RG_FLOAT32, 1, four, want));
}

static const int64_t entries[] = {3, 1, 0, 4, 3, 0};
static const rg_string words[] = {{"ragged", 6}, {"a", 1}, {NULL, 0}}, none = {"none", 4};

static rg_status sparse_fill(const rg_context* context, rg_output* out) {
  static const int64_t dense[] = {4, 5};
  const rg_tensor indices = tensor(entries, RG_INT64, 2, three_by_two), values = tensor(words, RG_STRING, 1, three),
                  dense_shape = tensor(dense, RG_INT64, 1, two), default_value = tensor(&none, RG_STRING, 0, NULL);
  return rg_sparse_fill_empty_rows(context, &indices, &values, &dense_shape, &default_value, &out[0], &out[1], &out[2],
                                   &out[3], message());
}
static void sparse_fill_check(const rg_output* out) {
  static const int64_t indices[] = {0, 4, 1, 0, 2, 0, 3, 1, 3, 0}, shape[] = {5, 2}, four[] = {4}, map[] = {3, 0, 4};
  static const char empty[] = {0, 1, 1, 0};
  static const char* want[] = {"a", "none", "none", "ragged", ""};
  CHECK(holds(&out[0], RG_INT64, 2, shape, indices));
  const rg_string* strings = out[1].data;
  CHECK(out[1].rank == 1 && out[1].shape[0] == 5);
  for (int i = 0; i < 5; ++i) {
    CHECK(strings[i].size == strlen(want[i]) && memcmp(strings[i].data, want[i], strings[i].size) == 0);
  }
  CHECK(holds(&out[2], RG_BOOL, 1, four, empty));
  CHECK(holds(&out[3], RG_INT64, 1, three, map));
}

static rg_status ragged_fill(const rg_context* context, rg_output* out) {
  static const int64_t rows[] = {0, 2}, count = 3;
  static const double numbers[] = {0.5, 1.5}, minus_one = -1;
  const rg_tensor rowids = tensor(rows, RG_INT64, 1, two), values = tensor(numbers, RG_FLOAT64, 1, two),
                  nrows = tensor(&count, RG_INT64, 0, NULL), default_value = tensor(&minus_one, RG_FLOAT64, 0, NULL);
  return rg_ragged_fill_empty_rows(context, &rowids, &values, &nrows, &default_value, &out[0], &out[1], &out[2],
                                   &out[3], message());
}
static void ragged_fill_check(const rg_output* out) {
  static const int64_t rows[] = {0, 1, 2}, map[] = {0, 2};
  static const double values[] = {0.5, -1, 1.5};
  static const char empty[] = {0, 1, 0};
  CHECK(holds(&out[0], RG_INT64, 1, three, rows) && holds(&out[1], RG_FLOAT64, 1, three, values));
  CHECK(holds(&out[2], RG_BOOL, 1, three, empty) && holds(&out[3], RG_INT64, 1, two, map));
}

static rg_status slice(const rg_context* context, rg_output* out) {
  static const int64_t dense[] = {4, 5}, from[] = {1, 0}, extent[] = {3, 1};
  const rg_tensor indices = tensor(entries, RG_INT64, 2, three_by_two), values = tensor(data, RG_FLOAT32, 1, three),
                  shape = tensor(dense, RG_INT64, 1, two), start = tensor(from, RG_INT64, 1, two),
                  size = tensor(extent, RG_INT64, 1, two);
  return rg_sparse_slice(context, &indices, &values, &shape, &start, &size, &out[0], &out[1], &out[2], message());
}
static void slice_check(const rg_output* out) {
  static const int64_t indices[] = {2, 0}, shape[] = {3, 1}, one[] = {1}, one_by_two[] = {1, 2};
  static const float values[] = {4};
  CHECK(holds(&out[0], RG_INT64, 2, one_by_two, indices) && holds(&out[1], RG_FLOAT32, 1, one, values));
  CHECK(holds(&out[2], RG_INT64, 1, two, shape));
}

static const Operator operators[] = {
    {segment, segment_check, 1},
    {segment_with_num_segments, segment_with_num_segments_check, 1},
    {sparse_fill, sparse_fill_check, 4},
    {ragged_fill, ragged_fill_check, 4},
    {slice, slice_check, 3},
};

// ---- memory of the program, which counts and fails when told to ----

typedef struct Heap {
  int requests, fail_at, live;
  unsigned asked;  // a bit per output
} Heap;

static void* heap_allocate(void* user, size_t bytes, const rg_output_spec* output) {
  Heap* heap = user;
  if (heap->requests++ == heap->fail_at) return NULL;
  if (output != NULL) {
    CHECK((heap->asked >> output->index & 1) == 0 && output->bytes == bytes);
    heap->asked |= 1u << output->index;
  }
  ++heap->live;
  return aligned_alloc(RG_ALIGNMENT, (bytes / RG_ALIGNMENT + 1) * RG_ALIGNMENT);
}
static void heap_deallocate(void* user, void* pointer, size_t bytes) {
  (void)bytes;
  --((Heap*)user)->live;
  free(pointer);
}

static void test_operator(const Operator* operator) {
  rg_output out[4];
  CHECK(operator->run(NULL, out) == RG_OK && text[0] == '\0');
  operator->check(out);
  for (int i = 0; i < operator->count; ++i) rg_output_free(NULL, &out[i]);

  Heap heap = {0, -1, 0, 0};
  rg_context context;
  rg_context_init(&context, sizeof context);
  context.user = &heap;
  context.allocate = heap_allocate;
  context.deallocate = heap_deallocate;
  CHECK(operator->run(&context, out) == RG_OK);
  operator->check(out);
  CHECK(heap.asked == (1u << operator->count) - 1 && heap.live == operator->count);
  for (int i = 0; i < operator->count; ++i) rg_output_free(&context, &out[i]);
  CHECK(heap.live == 0);
  for (int fail_at = 0, requests = heap.requests; fail_at < requests; ++fail_at) {
    const Heap failing = {0, fail_at, 0, 0};
    heap = failing;
    CHECK(operator->run(&context, out) == RG_RESOURCE_EXHAUSTED && heap.live == 0);
    for (int i = 0; i < operator->count; ++i) CHECK(out[i].data == NULL);
  }
}

static void test_bad_arguments(void) {
  rg_output out[4];
  const rg_tensor matrix = tensor(entries, RG_INT64, 2, three_by_two);
  CHECK(rg_sparse_slice(NULL, &matrix, NULL, &matrix, &matrix, &matrix, &out[0], &out[1], &out[2], message()) ==
        RG_INVALID_ARGUMENT);
  CHECK(strstr(text, "values") != NULL);
  CHECK(rg_sparse_fill_empty_rows(NULL, &matrix, &matrix, &matrix, &matrix, &out[0], &out[1], &out[1], &out[3],
                                  message()) == RG_INVALID_ARGUMENT);
  CHECK(strstr(text, "given twice") != NULL);
  CHECK(rg_sparse_segment(NULL, 7, &matrix, &matrix, &matrix, &out[0], message()) == RG_INVALID_ARGUMENT);
  CHECK(rg_sparse_segment(NULL, RG_SUM, &matrix, &matrix, &matrix, NULL, message()) == RG_INVALID_ARGUMENT);
}

int main(void) {
  for (int64_t i = 0; i < COUNT(operators); ++i) test_operator(&operators[i]);
  test_bad_arguments();
  return report();
}
