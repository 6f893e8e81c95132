// The C interface, from C: compiled as C11 without extensions. Prints what failed; exit status 1 if anything did.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raggrad/capi/raggrad_c.h"

static int failures = 0;

static void check(int good, const char* what, int line) {
  if (good) return;
  ++failures;
  printf("capi_test.c:%d: failed: %s\n", line, what);
}
#define CHECK(condition) check(condition, #condition, __LINE__)

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof((array)[0])))

static rg_tensor tensor(const void* data, int32_t dtype, int32_t rank, const int64_t* shape) {
  const rg_tensor t = {data, dtype, RG_CPU, rank, shape};
  return t;
}

// ---- a message buffer that is full of something else ----

static char text[512];

static rg_error* message(size_t capacity) {
  static rg_error error;
  memset(text, '#', sizeof text);
  error.message = text;
  error.capacity = capacity;
  return &error;
}

static int fails(rg_status got, rg_status want, const char* part) {
  if (got == want && strstr(text, part) != NULL) return 1;
  printf("got %s: %s\n", rg_code_name(got), text);
  return 0;
}

static int owns_nothing(const rg_output* output) {
  const unsigned char* bytes = (const unsigned char*)output;
  for (size_t i = 0; i < sizeof *output; ++i) {
    if (bytes[i] != 0) return 0;
  }
  return 1;
}

static int is_vector(const rg_output* output, int32_t dtype, int64_t size, const void* values) {
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

static void* heap_allocate(void* user, size_t bytes, const rg_output_spec* output) {
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

static void heap_deallocate(void* user, void* pointer, size_t bytes) {
  Heap* heap = user;
  --heap->live;
  heap->live_bytes -= bytes;
  free((char*)pointer - (heap->misalign ? 8 : 0));
}

static rg_context heap_context(Heap* heap) {
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

static rg_status segment_v2(const rg_context* context, Outputs* out, rg_error* error) {
  const rg_tensor grad = tensor(grad_data, RG_FLOAT32, 2, grad_shape);
  const rg_tensor indices = tensor(index_data, RG_INT32, 1, three);
  const rg_tensor segment_ids = tensor(segment_data, RG_INT64, 1, three);
  const rg_tensor dim0 = tensor(&dim0_data, RG_INT32, 0, NULL);
  return rg_sparse_segment_grad_v2(context, RG_MEAN, &grad, &indices, &segment_ids, &dim0, &out->first, &out->second,
                                   error);
}
static void segment_v2_check(const Outputs* out) {
  static const float rows[] = {1, 2, 9, 18};
  static const int32_t unique[] = {2, 5};
  CHECK(out->first.dtype == RG_FLOAT32 && out->first.rank == 2 && out->first.bytes == sizeof rows);
  CHECK(out->first.shape[0] == 2 && out->first.shape[1] == 2 && out->first.shape[2] == 0);
  CHECK(memcmp(out->first.data, rows, sizeof rows) == 0);
  CHECK(is_vector(&out->second, RG_INT32, 2, unique));
}

static rg_status segment_v1(const rg_context* context, Outputs* out, rg_error* error) {
  const rg_tensor grad = tensor(grad_data, RG_FLOAT32, 2, grad_shape);
  const rg_tensor indices = tensor(index_data, RG_INT32, 1, three);
  const rg_tensor segment_ids = tensor(segment_data, RG_INT64, 1, three);
  const rg_tensor dim0 = tensor(&dim0_data, RG_INT32, 0, NULL);
  return rg_sparse_segment_grad(context, RG_SUM, &grad, &indices, &segment_ids, &dim0, &out->first, error);
}
static void segment_v1_check(const Outputs* out) {
  static const float rows[14] = {0, 0, 0, 0, 2, 4, 0, 0, 0, 0, 10, 20};
  CHECK(out->first.rank == 2 && out->first.shape[0] == 7 && out->first.shape[1] == 2);
  CHECK(out->first.bytes == sizeof rows && memcmp(out->first.data, rows, sizeof rows) == 0);
}

static const int64_t map_data[] = {3, 0};
static const int64_t two[] = {2};
static const int16_t fill_data[] = {1, 20, 300, 4000};
static const int64_t four[] = {4};

static rg_status sparse_fill(const rg_context* context, Outputs* out, rg_error* error) {
  const rg_tensor map = tensor(map_data, RG_INT64, 1, two);
  const rg_tensor grad = tensor(fill_data, RG_INT16, 1, four);
  return rg_sparse_fill_empty_rows_grad(context, &map, &grad, &out->first, &out->second, error);
}
static rg_status ragged_fill(const rg_context* context, Outputs* out, rg_error* error) {
  const rg_tensor map = tensor(map_data, RG_INT64, 1, two);
  const rg_tensor grad = tensor(fill_data, RG_INT16, 1, four);
  return rg_ragged_fill_empty_rows_grad(context, &map, &grad, &out->first, &out->second, error);
}
static void fill_check(const Outputs* out) {
  static const int16_t values[] = {4000, 1};
  CHECK(is_vector(&out->first, RG_INT16, 2, values));
  CHECK(out->second.dtype == RG_INT16 && out->second.rank == 0 && *(const int16_t*)out->second.data == 320);
}

static rg_status slice(const rg_context* context, Outputs* out, rg_error* error) {
  static const double grad_values[] = {0.5, 0.25};
  static const int64_t before[] = {0, 1, 2, 3, 5, 5}, after[] = {0, 0, 3, 2}, start[] = {2, 3};
  static const int64_t before_shape[] = {3, 2}, after_shape[] = {2, 2};
  const rg_tensor grad = tensor(grad_values, RG_FLOAT64, 1, two);
  const rg_tensor input_indices = tensor(before, RG_INT64, 2, before_shape);
  const rg_tensor input_start = tensor(start, RG_INT64, 1, two);
  const rg_tensor output_indices = tensor(after, RG_INT64, 2, after_shape);
  return rg_sparse_slice_grad(context, &grad, &input_indices, &input_start, &output_indices, &out->first, error);
}
static void slice_check(const Outputs* out) {
  static const double values[] = {0, 0.5, 0.25};
  CHECK(is_vector(&out->first, RG_FLOAT64, 3, values));
}

static const rg_string words[] = {{"ragged", 6}, {NULL, 0}, {"a\0b", 3}};
static const int64_t splits_data[] = {0, 2, 4, 5};
static const int32_t dense_data = 5;
static const int64_t one[] = {1};

// Three elements of strings, the middle one missing.
static rg_status variant(const rg_context* context, Outputs* out, rg_error* error) {
  const rg_tensor splits = tensor(splits_data, RG_INT64, 1, four);
  const rg_tensor dense = tensor(&dense_data, RG_INT32, 1, one);
  rg_ragged elements[3];
  memset(elements, 0, sizeof elements);
  elements[0].values = tensor(words, RG_STRING, 1, two);
  elements[1].missing = 1;
  elements[1].values.rank = -77;  // is not looked at
  elements[2].values = tensor(words + 2, RG_STRING, 0, NULL);
  elements[2].num_splits = 3;  // neither
  const rg_variant_array array = {1, three, 3, elements};
  return rg_ragged_tensor_to_variant_grad(context, &array, &splits, &dense, RG_STRING, &out->first, error);
}
static void variant_check(const Outputs* out) {
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

static void free_outputs(const rg_context* context, Outputs* out) {
  rg_output_free(context, &out->first);
  rg_output_free(context, &out->second);
  CHECK(owns_nothing(&out->first) && owns_nothing(&out->second));
}

// ---- tests ----

static void test_results(void) {
  for (int64_t i = 0; i < COUNT(operators); ++i) {
    Outputs out;
    memset(&out, 0, sizeof out);
    const rg_status status = operators[i].run(NULL, &out, message(sizeof text));
    if (status != RG_OK) printf("%s: %s\n", operators[i].name, text);
    CHECK(status == RG_OK && text[0] == '\0');
    if (status == RG_OK) operators[i].check(&out);
    free_outputs(NULL, &out);
    free_outputs(NULL, &out);  // a second time does no harm

    CHECK(operators[i].run(NULL, &out, NULL) == RG_OK);
    free_outputs(NULL, &out);
  }
}

static void test_allocator(void) {
  for (int64_t i = 0; i < COUNT(operators); ++i) {
    Heap heap;
    const rg_context context = heap_context(&heap);
    Outputs out;
    memset(&out, 0, sizeof out);
    CHECK(operators[i].run(&context, &out, message(sizeof text)) == RG_OK);
    operators[i].check(&out);
    CHECK(heap.live == heap.outputs && heap.outputs >= 1);
    CHECK(heap.live_bytes == out.first.bytes + out.second.bytes);
    free_outputs(&context, &out);
    CHECK(heap.live == 0 && heap.live_bytes == 0);

    const int requests = heap.requests;
    for (int fail_at = 0; fail_at < requests; ++fail_at) {
      const rg_context failing = heap_context(&heap);
      heap.fail_at = fail_at;
      memset(&out.first, 0x55, sizeof out.first);
      CHECK(operators[i].run(&failing, &out, message(sizeof text)) == RG_RESOURCE_EXHAUSTED);
      CHECK(text[0] != '\0' && memchr(text, '\0', sizeof text) != NULL);
      CHECK(owns_nothing(&out.first) && owns_nothing(&out.second));
      CHECK(heap.live == 0 && heap.live_bytes == 0);
    }

    const rg_context misaligned = heap_context(&heap);
    heap.misalign = 1;
    CHECK(fails(operators[i].run(&misaligned, &out, message(sizeof text)), RG_INVALID_ARGUMENT,
                "memory is not aligned [context.allocate: expected a multiple of 64]"));
    CHECK(owns_nothing(&out.first) && heap.live == 0);
  }
}

// A parallel_for that makes as many threads as it has workers.
typedef struct Team {
  int64_t tasks, next, calls, most;
  pthread_mutex_t mutex;
  rg_task task;
  void* argument;
} Team;

static void* team_member(void* user) {
  Team* team = user;
  for (;;) {
    pthread_mutex_lock(&team->mutex);
    const int64_t task = team->next++;
    pthread_mutex_unlock(&team->mutex);
    if (task >= team->tasks) return NULL;
    team->task(team->argument, task);
  }
}

enum { WORKERS = 3 };

static void team_for(void* user, int64_t tasks, rg_task task, void* argument) {
  Team* team = user;
  pthread_t threads[WORKERS];
  team->tasks = tasks;
  team->next = 0;
  team->task = task;
  team->argument = argument;
  ++team->calls;
  if (tasks > team->most) team->most = tasks;
  for (int i = 0; i < WORKERS; ++i) CHECK(pthread_create(&threads[i], NULL, team_member, team) == 0);
  for (int i = 0; i < WORKERS; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
}

static void test_parallel_for(void) {
  enum { SIZE = 3000000 };
  int32_t* values = malloc(SIZE * sizeof *values);
  for (int32_t i = 0; i < SIZE; ++i) values[i] = i * 7;
  const int64_t shape[] = {SIZE};
  const int64_t rank2[] = {1, 1};
  rg_ragged element;
  memset(&element, 0, sizeof element);
  element.values = tensor(values, RG_INT32, 1, shape);
  const rg_variant_array array = {2, rank2, 1, &element};
  const int32_t zero = 0;
  const rg_tensor splits = tensor(&zero, RG_INT32, 0, NULL);
  const rg_tensor dense = tensor(NULL, RG_INT32, 1, (const int64_t[]){0});

  Team team = {0, 0, 0, 0, PTHREAD_MUTEX_INITIALIZER, NULL, NULL};
  rg_context context;
  rg_context_init(&context, sizeof context);
  context.user = &team;
  context.parallel_for = team_for;
  context.num_workers = WORKERS;
  for (int run = 0; run < 3; ++run) {
    rg_output out;
    CHECK(rg_ragged_tensor_to_variant_grad(&context, &array, &splits, &dense, RG_INT32, &out, NULL) == RG_OK);
    CHECK(is_vector(&out, RG_INT32, SIZE, values));
    rg_output_free(&context, &out);
    if (run == 0) {
      CHECK(team.calls >= 1 && team.most >= WORKERS);
      context.num_workers = 1;  // nothing to share with
      team.calls = 0;
    } else if (run == 1) {
      CHECK(team.calls == 0);
      context.parallel_for = NULL;
    }
  }
  free(values);
}

static void test_messages(void) {
  Outputs out;
  const rg_tensor nothing = tensor(NULL, RG_FLOAT32, 1, three);
  const char* whole = "rg_sparse_fill_empty_rows_grad: an argument is NULL [reverse_index_map]";
  for (size_t capacity = 0; capacity <= strlen(whole) + 2; ++capacity) {
    CHECK(rg_sparse_fill_empty_rows_grad(NULL, NULL, &nothing, &out.first, &out.second, message(capacity)) ==
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
    CHECK(sparse_fill(&context, &out, message(capacity)) == RG_INVALID_ARGUMENT);
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
#define EXPECT_BAD(part)                                                                                       \
  CHECK(fails(rg_sparse_fill_empty_rows_grad(NULL, &map, &bad, &out.first, &out.second, message(sizeof text)), \
              RG_INVALID_ARGUMENT, part));                                                                     \
  CHECK(owns_nothing(&out.first) && owns_nothing(&out.second));                                                \
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
  CHECK(fails(rg_sparse_fill_empty_rows_grad(NULL, &map, &bad, &out.first, &out.second, message(sizeof text)),
              RG_UNIMPLEMENTED,
              "rg_sparse_fill_empty_rows_grad: operands in device memory are for C++ only "
              "[grad_values.device: expected RG_CPU (1), got RG_CUDA (2)]"));
  bad = good;
  bad.data = (const char*)data + 2;
  EXPECT_BAD("an operand is not aligned [grad_values: expected an address that is a multiple of 4, got one that is 2");

  CHECK(fails(rg_sparse_fill_empty_rows_grad(NULL, &map, &good, NULL, &out.second, message(sizeof text)),
              RG_INVALID_ARGUMENT, "an output is NULL [output 0]"));
  CHECK(fails(rg_sparse_fill_empty_rows_grad(NULL, &map, &good, &out.first, NULL, message(sizeof text)),
              RG_INVALID_ARGUMENT, "an output is NULL [output 1]"));
  CHECK(fails(rg_sparse_fill_empty_rows_grad(NULL, &map, &good, &out.first, &out.first, message(sizeof text)),
              RG_INVALID_ARGUMENT, "an output is given twice [output 1]"));
  CHECK(fails(rg_ragged_fill_empty_rows_grad(NULL, NULL, NULL, NULL, NULL, message(sizeof text)), RG_INVALID_ARGUMENT,
              "rg_ragged_fill_empty_rows_grad: an output is NULL"));
  CHECK(rg_sparse_segment_grad_v2(NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == RG_INVALID_ARGUMENT);
  CHECK(rg_sparse_segment_grad(NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL) == RG_INVALID_ARGUMENT);
  CHECK(rg_sparse_slice_grad(NULL, NULL, NULL, NULL, NULL, NULL, NULL) == RG_INVALID_ARGUMENT);
  CHECK(rg_ragged_tensor_to_variant_grad(NULL, NULL, NULL, NULL, 0, NULL, NULL) == RG_INVALID_ARGUMENT);
  for (int32_t combiner = -1; combiner <= 3; combiner += 4) {
    CHECK(fails(rg_sparse_segment_grad(NULL, combiner, &good, &map, &map, &map, &out.first, message(sizeof text)),
                RG_INVALID_ARGUMENT, "no such combiner"));
  }
  CHECK(fails(rg_sparse_slice_grad(NULL, &good, &map, NULL, &map, &out.first, message(sizeof text)),
              RG_INVALID_ARGUMENT, "an argument is NULL [input_start]"));
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
#define EXPECT_BAD_VARIANT(part)                                                                                    \
  CHECK(fails(rg_ragged_tensor_to_variant_grad(NULL, &array, &splits, &dense, RG_INT8, &out, message(sizeof text)), \
              RG_INVALID_ARGUMENT, part));                                                                          \
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
  CHECK(fails(rg_ragged_tensor_to_variant_grad(NULL, NULL, &splits, &dense, RG_INT8, &out, message(sizeof text)),
              RG_INVALID_ARGUMENT, "an argument is NULL [encoded_ragged_grad]"));

  const rg_variant_array empty = {1, (const int64_t[]){0}, 0, NULL};
  const rg_tensor no_values = tensor((const int32_t[]){0, 3}, RG_INT32, 1, two);
  CHECK(rg_ragged_tensor_to_variant_grad(NULL, &empty, &splits, &no_values, RG_INT8, &out, NULL) == RG_OK);
  CHECK(out.data == NULL && out.bytes == 0 && out.rank == 2 && out.shape[0] == 0 && out.shape[1] == 3);
  rg_output_free(NULL, &out);
}

static void test_context(void) {
  Outputs out;
  rg_context context;
  Heap heap;
#define EXPECT_BAD_CONTEXT(part)                                                        \
  CHECK(fails(slice(&context, &out, message(sizeof text)), RG_INVALID_ARGUMENT, part)); \
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
  context.parallel_for = team_for;
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
  CHECK(slice(&context, &out, message(sizeof text)) == RG_OK && heap.live == 1);
  rg_output_free(&context, &out.first);
  CHECK(heap.live == 0);

  // A program that knows more fields may leave them zero, but not use them.
  struct {
    rg_context known;
    int64_t unknown;
  } newer;
  rg_context_init(&newer.known, sizeof newer);
  CHECK(slice(&newer.known, &out, message(sizeof text)) == RG_OK);
  rg_output_free(&newer.known, &out.first);
  newer.unknown = 1;
  CHECK(fails(slice(&newer.known, &out, message(sizeof text)), RG_INVALID_ARGUMENT, "does not know [context, byte"));
}

static void test_names(void) {
  static const struct {
    int32_t dtype;
    const char* name;
    size_t size;
  } dtypes[] = {
      {RG_FLOAT32, "float32", 4}, {RG_FLOAT64, "float64", 8},     {RG_INT32, "int32", 4},
      {RG_UINT8, "uint8", 1},     {RG_INT16, "int16", 2},         {RG_INT8, "int8", 1},
      {RG_STRING, "string", 16},  {RG_COMPLEX64, "complex64", 8}, {RG_INT64, "int64", 8},
      {RG_BOOL, "bool", 1},       {RG_QINT8, "qint8", 1},         {RG_QUINT8, "quint8", 1},
      {RG_QINT32, "qint32", 4},   {RG_BFLOAT16, "bfloat16", 2},   {RG_QINT16, "qint16", 2},
      {RG_QUINT16, "quint16", 2}, {RG_UINT16, "uint16", 2},       {RG_COMPLEX128, "complex128", 16},
      {RG_HALF, "half", 2},       {RG_UINT32, "uint32", 4},       {RG_UINT64, "uint64", 8},
  };
  CHECK(COUNT(dtypes) == 21);
  for (int64_t i = 0; i < COUNT(dtypes); ++i) {
    CHECK(strcmp(rg_dtype_name(dtypes[i].dtype), dtypes[i].name) == 0);
    CHECK(rg_dtype_from_name(dtypes[i].name) == dtypes[i].dtype);
    CHECK(rg_dtype_size(dtypes[i].dtype) == dtypes[i].size);
  }
  CHECK(rg_dtype_from_name("float16") == RG_HALF);
  CHECK(rg_dtype_from_name("float") == 0 && rg_dtype_from_name(NULL) == 0);
  CHECK(strcmp(rg_dtype_name(-4), "invalid") == 0 && rg_dtype_size(1000) == 0);

  static const struct {
    rg_status code;
    const char* name;
  } codes[] = {
      {RG_OK, "OK"},
      {RG_CANCELLED, "CANCELLED"},
      {RG_INVALID_ARGUMENT, "INVALID_ARGUMENT"},
      {RG_DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"},
      {RG_NOT_FOUND, "NOT_FOUND"},
      {RG_ALREADY_EXISTS, "ALREADY_EXISTS"},
      {RG_RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED"},
      {RG_UNIMPLEMENTED, "UNIMPLEMENTED"},
      {RG_INTERNAL, "INTERNAL"},
      {RG_UNAVAILABLE, "UNAVAILABLE"},
      {77, "UNKNOWN"},
  };
  for (int64_t i = 0; i < COUNT(codes); ++i) CHECK(strcmp(rg_code_name(codes[i].code), codes[i].name) == 0);

  CHECK(rg_abi_version() == RG_ABI_VERSION);
  int major, minor, patch;
  CHECK(sscanf(rg_version(), "%d.%d.%d", &major, &minor, &patch) == 3);
}

int main(void) {
  test_results();
  test_allocator();
  test_parallel_for();
  test_messages();
  test_bad_arguments();
  test_bad_variants();
  test_context();
  test_names();
  printf(failures == 0 ? "all checks passed\n" : "%d checks failed\n", failures);
  return failures != 0;
}
