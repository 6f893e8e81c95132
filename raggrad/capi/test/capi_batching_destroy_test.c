// The batching operators through the C interface: the program's own memory, and runtimes that end while calls do.
#include "raggrad/capi/test/batching_calls.h"

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
  *context = (rg_context)RG_INIT(rg_context);
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
    rg_output out = RG_INIT(rg_output);
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

static void destroy(void* user, rg_status status, const char* why, rg_output* const* outputs, int32_t num_outputs) {
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
      operands(&owner, 10 * i, 1, 10 * i, 2)->call.cancellation = token;
      if (by_deadline) owner.call.wait_micros = 200000;
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
    operands(&owner, 0, 1, 0, 2)->call.cancellation = token;
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

int main(void) {
  own_memory();
  destroyed_by_a_callback();
  cancelled_while_destroyed();
  return report();
}
