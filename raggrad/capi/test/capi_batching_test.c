// The batching operators from C, with threads: compiled as C11 without extensions. Prints what failed; exit status 1 if
// anything did.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raggrad/capi/raggrad_c_batching.h"

static atomic_int failures = 0;

static void check(int good, const char* what, int line) {
  if (good) return;
  ++failures;
  printf("capi_batching_test.c:%d: failed: %s\n", line, what);
}
#define CHECK(condition) check(condition, #condition, __LINE__)

static _Thread_local char text[512];

static rg_error* message(void) {
  static _Thread_local rg_error error;
  memset(text, '#', sizeof text);
  error.message = text;
  error.capacity = sizeof text;
  return &error;
}

static int fails(rg_status got, rg_status want, const char* part) {
  if (got == want && strstr(text, part) != NULL) return 1;
  printf("got %s: %s\n", rg_code_name(got), text);
  return 0;
}

// ---- operands: one row of two floats per call, keys 0, 1, 2, ... ----

enum { kMostKeys = 8 };
static const int64_t kNoShape[] = {0, 3};

typedef struct Operands {
  int64_t index[kMostKeys][3];
  float grad[2];
  int64_t id;
  int64_t input_shape[2], index_shape[2], grad_shape[2];
  rg_tensor original_input, batch_index, grad_tensor, id_tensor;
  rg_unbatch_grad_call call;
} Operands;

// An owner of `keys` pieces from key `first` on, or, without any, not an owner.
static Operands* operands(Operands* o, int64_t id, float value, int64_t first, int64_t keys) {
  memset(o, 0, sizeof *o);
  o->id = id;
  o->grad[0] = o->grad[1] = value;
  for (int64_t i = 0; i < keys; ++i) {
    o->index[i][0] = first + i;
    o->index[i][1] = i;
    o->index[i][2] = i + 1;
  }
  o->input_shape[0] = o->index_shape[0] = keys;
  o->input_shape[1] = o->grad_shape[1] = 2;
  o->index_shape[1] = 3;
  o->grad_shape[0] = 1;
  o->original_input = (rg_tensor){NULL, RG_FLOAT32, RG_CPU, 2, o->input_shape};
  o->batch_index = (rg_tensor){o->index, RG_INT64, RG_CPU, 2, o->index_shape};
  o->grad_tensor = (rg_tensor){o->grad, RG_FLOAT32, RG_CPU, 2, o->grad_shape};
  o->id_tensor = (rg_tensor){&o->id, RG_INT64, RG_CPU, 0, NULL};
  o->call.struct_size = sizeof o->call;
  o->call.name = "head";
  o->call.original_input = &o->original_input;
  o->call.batch_index = &o->batch_index;
  o->call.grad = &o->grad_tensor;
  o->call.id = &o->id_tensor;
  return o;
}

static int has_rows(const rg_output* output, int64_t rows) {
  return output->dtype == RG_FLOAT32 && output->rank == 2 && output->shape[0] == rows && output->shape[1] == 2;
}

static int owns_nothing(const rg_output* output) { return output->data == NULL && output->rank == 0; }

static rg_batching_runtime* make_runtime(void) {
  rg_batching_runtime* runtime = NULL;
  CHECK(rg_batching_runtime_create(NULL, NULL, &runtime, message()) == RG_OK);
  return runtime;
}

static rg_resource_statistics statistics(rg_batching_runtime* runtime) {
  rg_resource_statistics result = {.struct_size = sizeof result};
  CHECK(rg_resource_get_statistics(runtime, RG_UNBATCH_GRAD, NULL, "head", &result, message()) == RG_OK);
  return result;
}

static void bring(rg_batching_runtime* runtime, int64_t id, float value) {
  Operands piece;
  rg_output out;
  CHECK(rg_unbatch_grad(runtime, &operands(&piece, id, value, 0, 0)->call, &out, message()) == RG_OK);
  CHECK(has_rows(&out, 0) && out.data == NULL);
}

// ---- what callbacks and released operands leave ----

typedef struct Log {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int calls, released;
  rg_status status;
  char text[256];
  int32_t num_outputs;
  rg_output output;
} Log;

static void log_init(Log* log) {
  memset(log, 0, sizeof *log);
  pthread_mutex_init(&log->mutex, NULL);
  pthread_cond_init(&log->changed, NULL);
}

static void done(void* user, rg_status status, const char* why, rg_output* outputs, int32_t num_outputs) {
  Log* log = user;
  pthread_mutex_lock(&log->mutex);
  ++log->calls;
  log->status = status;
  strncpy(log->text, why, sizeof log->text - 1);
  log->num_outputs = num_outputs;
  if (num_outputs > 0) log->output = outputs[0];
  for (int32_t i = 1; i < num_outputs; ++i) rg_output_free(NULL, &outputs[i]);
  pthread_cond_signal(&log->changed);
  pthread_mutex_unlock(&log->mutex);
}

static void released(void* argument) { ++((Log*)argument)->released; }

static void await_call(Log* log) {
  pthread_mutex_lock(&log->mutex);
  while (log->calls == 0) pthread_cond_wait(&log->changed, &log->mutex);
  pthread_mutex_unlock(&log->mutex);
}

// ---- threads ----

typedef struct Worker {
  rg_batching_runtime* runtime;
  int64_t me, threads;
} Worker;

static void* work(void* argument) {
  const Worker* worker = argument;
  for (int64_t batch = 0; batch < 300; ++batch) {
    const int64_t first = batch * worker->threads;
    const int owner = batch % worker->threads == worker->me;
    Operands o;
    operands(&o, first + worker->me, (float)worker->me, first, owner ? worker->threads : 0);
    rg_output out;
    CHECK(rg_unbatch_grad(worker->runtime, &o.call, &out, message()) == RG_OK);
    CHECK(has_rows(&out, owner ? worker->threads : 0));
    for (int64_t i = 0; i < out.shape[0]; ++i) CHECK(((float*)out.data)[2 * i] == (float)i);
    rg_output_free(NULL, &out);
  }
  return NULL;
}

static void threads_meet(void) {
  rg_batching_runtime* runtime = make_runtime();
  Worker workers[kMostKeys];
  pthread_t threads[kMostKeys];
  for (int64_t i = 0; i < kMostKeys; ++i) {
    workers[i] = (Worker){runtime, i, kMostKeys};
    CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
  }
  for (int i = 0; i < kMostKeys; ++i) pthread_join(threads[i], NULL);
  const rg_resource_statistics s = statistics(runtime);
  CHECK(s.calls == 300 * kMostKeys && s.succeeded == s.calls && s.pieces == 0 && s.bytes == 0 && s.waiters == 0);
  rg_batching_runtime_destroy(runtime);
}

static void asynchronous_calls(void) {
  rg_batching_runtime* runtime = make_runtime();
  Operands owner;
  Log log;
  log_init(&log);
  operands(&owner, 0, 1, 0, 2)->call.release = released;
  owner.call.release_argument = &log;
  CHECK(rg_unbatch_grad_async(runtime, &owner.call, done, &log, message()) == RG_OK);
  CHECK(text[0] == '\0' && log.calls == 0 && log.released == 0 && statistics(runtime).waiters == 1);
  bring(runtime, 1, 5);
  CHECK(log.calls == 1 && log.status == RG_OK && log.num_outputs == 1 && has_rows(&log.output, 2) && log.released == 1);
  CHECK(((float*)log.output.data)[0] == 1 && ((float*)log.output.data)[2] == 5);
  rg_output_free(NULL, &log.output);

  // Without a promise to keep it, the gradient is copied.
  log_init(&log);
  operands(&owner, 0, 1, 0, 2);
  CHECK(rg_unbatch_grad_async(runtime, &owner.call, done, &log, message()) == RG_OK);
  owner.grad[0] = 99;
  bring(runtime, 1, 5);
  CHECK(((float*)log.output.data)[0] == 1);
  rg_output_free(NULL, &log.output);

  // A call that fails before it is begun releases its operands, and does not call back.
  log_init(&log);
  operands(&owner, 0, 1, 0, 2)->call.release = released;
  owner.call.release_argument = &log;
  owner.call.id = NULL;
  CHECK(fails(rg_unbatch_grad_async(runtime, &owner.call, done, &log, message()), RG_INVALID_ARGUMENT,
              "an argument is NULL [call.id]"));
  CHECK(log.calls == 0 && log.released == 1);
  // One that the operator refuses calls back.
  owner.call.id = &owner.batch_index;
  CHECK(rg_unbatch_grad_async(runtime, &owner.call, done, &log, message()) == RG_OK);
  CHECK(log.calls == 1 && log.status == RG_INVALID_ARGUMENT && log.num_outputs == 0 && log.released == 2);
  CHECK(strstr(log.text, "Expected `id` to be scalar") != NULL);
  rg_batching_runtime_destroy(runtime);
}

static void waits_end(void) {
  rg_batching_runtime* runtime = make_runtime();
  rg_cancellation* token = rg_cancellation_create();
  CHECK(token != NULL && rg_cancellation_cancelled(token) == 0);
  Operands owner;
  Log log;
  rg_output out;
  log_init(&log);
  operands(&owner, 0, 1, 0, 2)->call.waiting.cancellation = token;
  CHECK(rg_unbatch_grad_async(runtime, &owner.call, done, &log, message()) == RG_OK);
  rg_cancellation_cancel(token);
  CHECK(log.calls == 1 && log.status == RG_CANCELLED && rg_cancellation_cancelled(token) == 1);
  CHECK(fails(rg_unbatch_grad(runtime, &owner.call, &out, message()), RG_CANCELLED, "the call was cancelled"));
  CHECK(owns_nothing(&out));
  rg_cancellation_destroy(token);

  operands(&owner, 0, 1, 0, 2)->call.waiting.timeout_micros = 1000;
  CHECK(fails(rg_unbatch_grad(runtime, &owner.call, &out, message()), RG_DEADLINE_EXCEEDED, "timeout window"));
  owner.call.waiting.timeout_micros = -1;
  CHECK(rg_unbatch_grad(runtime, &owner.call, &out, message()) == RG_DEADLINE_EXCEEDED);
  log_init(&log);
  owner.call.waiting.timeout_micros = 1;
  CHECK(rg_unbatch_grad_async(runtime, &owner.call, done, &log, message()) == RG_OK);
  await_call(&log);
  CHECK(log.status == RG_DEADLINE_EXCEEDED);

  log_init(&log);
  owner.call.waiting.timeout_micros = RG_NO_DEADLINE;
  CHECK(rg_unbatch_grad_async(runtime, &owner.call, done, &log, message()) == RG_OK);
  CHECK(rg_resource_close(runtime, RG_UNBATCH_GRAD, "", "head", message()) == RG_OK);
  CHECK(log.calls == 1 && log.status == RG_CANCELLED && strstr(log.text, "the resource was closed") != NULL);
  CHECK(rg_unbatch_grad_async(runtime, &owner.call, done, &log, message()) == RG_OK);
  rg_batching_close_all(runtime);
  CHECK(log.calls == 2);
  CHECK(rg_unbatch_grad_async(runtime, &owner.call, done, &log, message()) == RG_OK);
  rg_batching_runtime_destroy(runtime);
  CHECK(log.calls == 3 && log.status == RG_CANCELLED);
}

static void limits_and_statistics(void) {
  rg_resource_limits limits;
  rg_resource_limits_init(&limits, sizeof limits);
  CHECK(limits.struct_size == sizeof limits && limits.max_pieces == 1 << 20 && limits.max_bytes == INT64_MAX);
  CHECK(limits.default_timeout_micros == 600000000 && limits.max_piece_age_micros == 600000000);
  limits.max_pieces = 1;
  rg_batching_runtime* runtime = NULL;
  CHECK(rg_batching_runtime_create(NULL, &limits, &runtime, message()) == RG_OK);
  rg_resource_limits got = {sizeof got, 0, 0, 0, 0, 0};
  CHECK(fails(rg_resource_get_limits(runtime, RG_UNBATCH_GRAD, "", "head", &got, message()), RG_NOT_FOUND, "'head'"));
  bring(runtime, 1, 1);
  CHECK(rg_resource_get_limits(runtime, RG_UNBATCH_GRAD, "", "head", &got, message()) == RG_OK && got.max_pieces == 1);
  Operands piece;
  rg_output out;
  operands(&piece, 2, 1, 0, 0);
  CHECK(fails(rg_unbatch_grad(runtime, &piece.call, &out, message()), RG_RESOURCE_EXHAUSTED, "pieces"));
  got.max_pieces = 2;
  CHECK(rg_resource_set_limits(runtime, RG_UNBATCH_GRAD, "", "head", &got, message()) == RG_OK);
  CHECK(rg_unbatch_grad(runtime, &piece.call, &out, message()) == RG_OK);
  rg_resource_statistics s = statistics(runtime);
  CHECK(s.calls == 3 && s.succeeded == 2 && s.failed == 1 && s.refused == 1 && s.pieces == 2 && s.bytes == 16);
  // A program that knows fewer fields gets no more.
  memset(&s, 0x55, sizeof s);
  s.struct_size = offsetof(rg_resource_statistics, failed);
  CHECK(rg_resource_get_statistics(runtime, RG_UNBATCH_GRAD, "", "head", &s, message()) == RG_OK);
  CHECK(s.calls == 3 && s.succeeded == 2 && s.failed == 0x5555555555555555 && s.struct_size < sizeof s);
  s.struct_size = 0;
  CHECK(fails(rg_resource_get_statistics(runtime, RG_UNBATCH_GRAD, "", "head", &s, message()), RG_INVALID_ARGUMENT,
              "statistics is not initialised"));
  CHECK(fails(rg_resource_close(runtime, 3, "", "head", message()), RG_INVALID_ARGUMENT, "no such kind"));
  rg_batching_runtime_destroy(runtime);
}

static void batch_and_back(void) {
  rg_batching_runtime* runtime = make_runtime();
  const float rows[] = {1, 2, 3, 4};
  const int64_t numbers[] = {7, 8};
  const int64_t shapes[][2] = {{2, 2}, {2, 0}};
  const rg_tensor tensors[] = {{rows, RG_FLOAT32, RG_CPU, 2, shapes[0]}, {numbers, RG_INT64, RG_CPU, 1, shapes[1]}};
  rg_batch_call call = {.struct_size = sizeof call, .in_tensors = tensors, .num_tensors = 2};
  call.num_batch_threads = 1;
  call.max_batch_size = 4;
  call.max_enqueued_batches = 10;
  call.batch_timeout_micros = 10000000;
  Log log;
  log_init(&log);
  call.release = released;
  call.release_argument = &log;
  CHECK(rg_batch_async(runtime, &call, done, &log, message()) == RG_OK);
  rg_output out[2], index, id;
  CHECK(rg_batch(runtime, &call, out, &index, &id, message()) == RG_OK);
  CHECK(log.calls == 1 && log.status == RG_OK && log.num_outputs == 4 && has_rows(&log.output, 0) && log.released == 2);
  CHECK(has_rows(&out[0], 4) && out[1].shape[0] == 4 && index.shape[0] == 2 && index.shape[1] == 3 && id.rank == 0);
  const rg_tensor batch = {out[0].data, RG_FLOAT32, RG_CPU, 2, out[0].shape};
  const rg_tensor table = {index.data, RG_INT64, RG_CPU, 2, index.shape};
  const rg_tensor mine = {id.data, RG_INT64, RG_CPU, 0, NULL};
  const rg_tensor other = {index.data, RG_INT64, RG_CPU, 0, NULL};  // the first call's key
  const rg_tensor nothing = {NULL, RG_FLOAT32, RG_CPU, 2, (const int64_t[]){0, 2}};
  const rg_tensor no_table = {NULL, RG_INT64, RG_CPU, 2, kNoShape};
  rg_unbatch_call back = {sizeof back, NULL, NULL, &nothing, &no_table, &other, 60000000, {0, NULL}};
  rg_output part;
  log_init(&log);
  CHECK(rg_unbatch_async(runtime, &back, done, &log, message()) == RG_OK && log.calls == 0);
  back.batched_tensor = &batch;
  back.batch_index = &table;
  back.id = &mine;
  CHECK(rg_unbatch(runtime, &back, &part, message()) == RG_OK);
  CHECK(has_rows(&part, 2) && memcmp(part.data, rows, sizeof rows) == 0);
  CHECK(log.calls == 1 && log.status == RG_OK && has_rows(&log.output, 2));
  rg_output* const outputs[] = {&out[0], &out[1], &index, &id, &part, &log.output};
  for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; ++i) rg_output_free(NULL, outputs[i]);
  const int64_t sizes[] = {3, 2};
  call.allowed_batch_sizes = sizes;
  call.num_allowed_batch_sizes = 2;
  call.release = NULL;
  memset(out, 0x55, sizeof out);
  CHECK(fails(rg_batch(runtime, &call, out, &index, &id, message()), RG_INVALID_ARGUMENT, "monotonically increasing"));
  CHECK(owns_nothing(&out[0]) && owns_nothing(&out[1]) && owns_nothing(&index) && owns_nothing(&id));
  rg_batching_runtime_destroy(runtime);
}

// ---- the program's own memory ----

typedef struct Heap {
  atomic_int live, requests;
  int fail_at;
  atomic_int gone, late;  // how often it was used after it was gone
} Heap;

static void* heap_allocate(void* user, size_t bytes, const rg_output_spec* output) {
  Heap* heap = user;
  (void)output;
  heap->late += heap->gone;
  if (heap->requests++ == heap->fail_at) return NULL;
  ++heap->live;
  return aligned_alloc(RG_ALIGNMENT, (bytes + RG_ALIGNMENT - 1) / RG_ALIGNMENT * RG_ALIGNMENT);
}
static void heap_deallocate(void* user, void* pointer, size_t bytes) {
  Heap* heap = user;
  (void)bytes;
  heap->late += heap->gone;
  --heap->live;
  free(pointer);
}

static rg_batching_runtime* make_runtime_on(Heap* heap, rg_context* context) {
  rg_context_init(context, sizeof *context);
  context->user = heap;
  context->allocate = heap_allocate;
  context->deallocate = heap_deallocate;
  context->num_workers = 1;
  rg_batching_runtime* runtime = NULL;
  CHECK(rg_batching_runtime_create(context, NULL, &runtime, message()) == RG_OK);
  return runtime;
}

static void own_memory(void) {
  for (int fail_at = 0; fail_at < 4; ++fail_at) {
    Heap heap = {.fail_at = fail_at};
    rg_context context;
    rg_batching_runtime* runtime = make_runtime_on(&heap, &context);
    Operands owner, piece;
    Log log;
    log_init(&log);
    operands(&owner, 0, 1, 0, 2);
    operands(&piece, 1, 1, 0, 0);
    CHECK(rg_unbatch_grad_async(runtime, &owner.call, done, &log, message()) == RG_OK);
    rg_output out;
    const rg_status status = rg_unbatch_grad(runtime, &piece.call, &out, message());
    CHECK(status == RG_OK || status == RG_RESOURCE_EXHAUSTED);
    rg_batching_close_all(runtime);
    CHECK(log.calls == 1 && (log.status == RG_OK) == (fail_at >= heap.requests));
    rg_output_free(&context, &log.output);
    rg_output_free(&context, &out);
    rg_batching_runtime_destroy(runtime);
    CHECK(heap.live == 0);
  }
}

// ---- a runtime that ends while its calls do ----

typedef struct Ender {
  _Atomic(rg_batching_runtime*) runtime;  // destroyed by the first callback
  Heap heap;
  atomic_int calls;  // callbacks of several deadlines run side by side
  int calls_at_end;
  Log log;  // of the end
} Ender;

static void destroy(void* user, rg_status status, const char* why, rg_output* outputs, int32_t num_outputs) {
  Ender* ender = user;
  CHECK(num_outputs == 0 && (status == RG_CANCELLED || status == RG_DEADLINE_EXCEEDED));
  ++ender->calls;
  rg_batching_runtime* const runtime = atomic_exchange(&ender->runtime, NULL);
  if (runtime == NULL) return;
  rg_batching_runtime_destroy(runtime);
  ender->calls_at_end = ender->calls;
  ender->heap.gone = 1;
  done(&ender->log, status, why, outputs, num_outputs);
}

static void destroyed_by_a_callback(void) {
  for (int by_deadline = 0; by_deadline < 2; ++by_deadline) {
    Ender ender = {.heap = {.fail_at = -1}};
    log_init(&ender.log);
    rg_context context;
    rg_batching_runtime* const runtime = make_runtime_on(&ender.heap, &context);
    ender.runtime = runtime;
    rg_cancellation* token = rg_cancellation_create();
    for (int64_t i = 0; i < 3; ++i) {
      Operands owner;
      operands(&owner, 10 * i, 1, 10 * i, 2)->call.waiting.cancellation = token;
      if (by_deadline) owner.call.waiting.timeout_micros = 200000;
      CHECK(rg_unbatch_grad_async(runtime, &owner.call, destroy, &ender, message()) == RG_OK);
    }
    CHECK(ender.heap.live == 3);  // copies of the gradients
    if (!by_deadline) rg_cancellation_cancel(token);
    await_call(&ender.log);
    CHECK(ender.calls_at_end == 3 && ender.calls == 3 && ender.heap.live == 0 && ender.heap.late == 0);
    rg_cancellation_destroy(token);
  }
}

static void* cancel(void* token) {
  rg_cancellation_cancel(token);
  return NULL;
}

static void cancelled_while_destroyed(void) {
  for (int i = 0; i < 200; ++i) {
    Heap heap = {.fail_at = -1};
    rg_context context;
    rg_batching_runtime* runtime = make_runtime_on(&heap, &context);
    rg_cancellation* token = rg_cancellation_create();
    Log log;
    log_init(&log);
    Operands owner;
    operands(&owner, 0, 1, 0, 2)->call.waiting.cancellation = token;
    CHECK(rg_unbatch_grad_async(runtime, &owner.call, done, &log, message()) == RG_OK);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, cancel, token) == 0);
    rg_batching_runtime_destroy(runtime);
    heap.gone = 1;
    CHECK(log.calls == 1 && log.status == RG_CANCELLED && heap.live == 0);
    pthread_join(thread, NULL);
    CHECK(log.calls == 1 && heap.late == 0);
    rg_cancellation_destroy(token);
  }
}

static void wrong_arguments(void) {
  rg_batching_runtime* runtime = make_runtime();
  Operands owner;
  rg_output out;
  operands(&owner, 0, 1, 0, 1);
  CHECK(fails(rg_batching_runtime_create(NULL, NULL, NULL, message()), RG_INVALID_ARGUMENT, "NULL [runtime]"));
  rg_batching_runtime* none = runtime;
  rg_resource_limits limits = {0};
  CHECK(fails(rg_batching_runtime_create(NULL, &limits, &none, message()), RG_INVALID_ARGUMENT, "limits is not init"));
  CHECK(none == NULL);
  rg_context context = {0};
  CHECK(
      fails(rg_batching_runtime_create(&context, NULL, &none, message()), RG_INVALID_ARGUMENT, "context is not init"));
  CHECK(fails(rg_unbatch_grad(NULL, &owner.call, &out, message()), RG_INVALID_ARGUMENT, "NULL [runtime]"));
  CHECK(fails(rg_unbatch_grad(runtime, NULL, &out, message()), RG_INVALID_ARGUMENT, "NULL [call]"));
  CHECK(fails(rg_unbatch_grad(runtime, &owner.call, NULL, message()), RG_INVALID_ARGUMENT, "output is NULL"));
  CHECK(fails(rg_unbatch_grad_async(runtime, &owner.call, NULL, NULL, message()), RG_INVALID_ARGUMENT, "NULL [done]"));
  CHECK(fails(rg_unbatch(runtime, NULL, &out, message()), RG_INVALID_ARGUMENT, "NULL [call]"));
  CHECK(fails(rg_batch(runtime, NULL, &out, &out, &out, message()), RG_INVALID_ARGUMENT, "given twice"));
  rg_batch_call batch = {.struct_size = sizeof batch, .num_tensors = 1};
  rg_output more[2];
  CHECK(fails(rg_batch(runtime, &batch, NULL, &more[0], &more[1], message()), RG_INVALID_ARGUMENT, "batched_tensors"));
  CHECK(fails(rg_batch(runtime, &batch, &out, &more[0], &more[1], message()), RG_INVALID_ARGUMENT, "call.in_tensors"));
  CHECK(fails(rg_resource_close(NULL, RG_BATCH, "", "", message()), RG_INVALID_ARGUMENT, "NULL [runtime]"));
  CHECK(
      fails(rg_resource_set_limits(runtime, RG_BATCH, "", "", NULL, message()), RG_INVALID_ARGUMENT, "NULL [limits]"));
  const rg_tensor* const right = owner.call.grad;
  owner.call.grad = NULL;
  CHECK(fails(rg_unbatch_grad(runtime, &owner.call, &out, message()), RG_INVALID_ARGUMENT, "NULL [call.grad]"));
  owner.call.grad = right;
  owner.call.struct_size = 3;
  CHECK(fails(rg_unbatch_grad(runtime, &owner.call, &out, message()), RG_INVALID_ARGUMENT, "call is not initialised"));
  struct {
    rg_unbatch_grad_call known;
    int64_t unknown;
  } newer = {owner.call, 1};
  newer.known.struct_size = sizeof newer;
  CHECK(
      fails(rg_unbatch_grad(runtime, &newer.known, &out, message()), RG_INVALID_ARGUMENT, "does not know [call, byte"));
  newer.unknown = 0;
  CHECK(rg_unbatch_grad(runtime, &newer.known, &out, NULL) == RG_OK && has_rows(&out, 1));
  rg_output_free(NULL, &out);
  // A program that knows fewer fields: a struct that ends before `strict`.
  owner.call.struct_size = offsetof(rg_unbatch_grad_call, strict);
  owner.call.strict = 1;
  owner.index[0][1] = 77;  // strict would refuse that
  CHECK(rg_unbatch_grad(runtime, &owner.call, &out, message()) == RG_OK);
  rg_output_free(NULL, &out);
  owner.call.struct_size = sizeof owner.call;
  CHECK(fails(rg_unbatch_grad(runtime, &owner.call, &out, message()), RG_INVALID_ARGUMENT, "expected a range"));
  rg_batching_runtime_destroy(NULL);
  rg_cancellation_cancel(NULL);
  CHECK(rg_cancellation_cancelled(NULL) == 0);
  rg_cancellation_destroy(NULL);
  rg_batching_close_all(NULL);
  rg_resource_limits_init(NULL, sizeof limits);
  rg_batching_runtime_destroy(runtime);
}

int main(void) {
  threads_meet();
  asynchronous_calls();
  waits_end();
  limits_and_statistics();
  batch_and_back();
  own_memory();
  destroyed_by_a_callback();
  cancelled_while_destroyed();
  wrong_arguments();
  if (failures == 0) puts("capi_batching_test: all passed");
  return failures == 0 ? 0 : 1;
}
