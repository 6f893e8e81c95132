// The operators through the C interface: results, memory and threads of the program, names of types and codes.
#include <pthread.h>

#include "raggrad/capi/test/heap.h"
#include "raggrad/capi/test/ragged_operators.h"

static void test_results(const Operator* operator) {
  rg_output out[kMostOutputs];
  const rg_status status = run_operator(operator, NULL, out);
  if (status != RG_OK) printf("%s: %s\n", operator->name, text);
  CHECK(status == RG_OK && text[0] == '\0');
  free_outputs(NULL, out);
  free_outputs(NULL, out);  // a second time does no harm
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
  const rg_tensor all = tensor(values, RG_INT32, 1, shape);
  const rg_ragged element = {sizeof element, &all, NULL, 0};
  const rg_ragged* elements[] = {&element};
  const rg_variant_array array = {sizeof array, 2, rank2, 1, elements};
  const int32_t zero = 0;
  const rg_tensor splits = tensor(&zero, RG_INT32, 0, NULL);
  const rg_tensor dense = tensor(NULL, RG_INT32, 1, (const int64_t[]){0});

  Team team = {0, 0, 0, 0, PTHREAD_MUTEX_INITIALIZER, NULL, NULL};
  rg_context context = RG_INIT(rg_context);
  context.user = &team;
  context.parallel_for = team_for;
  context.num_workers = WORKERS;
  for (int run = 0; run < 3; ++run) {
    rg_output out = RG_INIT(rg_output);
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

  CHECK(rg_abi_version() == RG_ABI_VERSION && RG_ABI_VERSION == 2);
  int major, minor, patch;
  CHECK(sscanf(rg_version(), "%d.%d.%d", &major, &minor, &patch) == 3);
}

int main(void) {
  for_each_operator(test_results);
  for_each_operator(check_memory);
  test_parallel_for();
  test_names();
  return report();
}
