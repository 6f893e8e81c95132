// The batching operators through the C interface: calls from threads, asynchronous calls, and how waits end.
#include "raggrad/capi/test/batching_calls.h"

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
    rg_output out = RG_INIT(rg_output);
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
  rg_output out = RG_INIT(rg_output);
  log_init(&log);
  operands(&owner, 0, 1, 0, 2)->call.cancellation = token;
  CHECK(rg_unbatch_grad_async(runtime, &owner.call, done, &log, message()) == RG_OK);
  rg_cancellation_cancel(token);
  CHECK(log.calls == 1 && log.status == RG_CANCELLED && rg_cancellation_cancelled(token) == 1);
  CHECK(fails(rg_unbatch_grad(runtime, &owner.call, &out, message()), RG_CANCELLED, "the call was cancelled"));
  CHECK(owns_nothing(&out));
  rg_cancellation_destroy(token);

  operands(&owner, 0, 1, 0, 2)->call.wait_micros = 1000;
  CHECK(fails(rg_unbatch_grad(runtime, &owner.call, &out, message()), RG_DEADLINE_EXCEEDED, "timeout window"));
  owner.call.wait_micros = -1;
  CHECK(rg_unbatch_grad(runtime, &owner.call, &out, message()) == RG_DEADLINE_EXCEEDED);
  log_init(&log);
  owner.call.wait_micros = 1;
  CHECK(rg_unbatch_grad_async(runtime, &owner.call, done, &log, message()) == RG_OK);
  await_call(&log);
  CHECK(log.status == RG_DEADLINE_EXCEEDED);

  log_init(&log);
  owner.call.wait_micros = RG_NO_DEADLINE;
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

static void batch_and_back(void) {
  rg_batching_runtime* runtime = make_runtime();
  const float rows[] = {1, 2, 3, 4};
  const int64_t numbers[] = {7, 8};
  const int64_t shapes[][2] = {{2, 2}, {2, 0}};
  const rg_tensor tensors[] = {tensor(rows, RG_FLOAT32, 2, shapes[0]), tensor(numbers, RG_INT64, 1, shapes[1])};
  const rg_tensor* const in_tensors[] = {&tensors[0], &tensors[1]};
  rg_batch_call call = {.struct_size = sizeof call, .in_tensors = in_tensors, .num_tensors = 2};
  call.num_batch_threads = 1;
  call.max_batch_size = 4;
  call.max_enqueued_batches = 10;
  call.batch_timeout_micros = 10000000;
  Log log;
  log_init(&log);
  call.release = released;
  call.release_argument = &log;
  CHECK(rg_batch_async(runtime, &call, done, &log, message()) == RG_OK);
  rg_output out[] = {RG_INIT(rg_output), RG_INIT(rg_output)}, index = RG_INIT(rg_output), id = RG_INIT(rg_output);
  rg_output* const list[] = {&out[0], &out[1]};
  CHECK(rg_batch(runtime, &call, list, &index, &id, message()) == RG_OK);
  CHECK(log.calls == 1 && log.status == RG_OK && log.num_outputs == 4 && has_rows(&log.output, 0) && log.released == 2);
  CHECK(has_rows(&out[0], 4) && out[1].shape[0] == 4 && index.shape[0] == 2 && index.shape[1] == 3 && id.rank == 0);
  const rg_tensor batch = rg_output_view(&out[0]), table = rg_output_view(&index), mine = rg_output_view(&id);
  const rg_tensor other = tensor(index.data, RG_INT64, 0, NULL);  // the first call's key
  const rg_tensor nothing = tensor(NULL, RG_FLOAT32, 2, (const int64_t[]){0, 2});
  const rg_tensor no_table = tensor(NULL, RG_INT64, 2, (const int64_t[]){0, 3});
  rg_unbatch_call back = {sizeof back, NULL, NULL, &nothing, &no_table, &other, 60000000, 0, NULL};
  rg_output part = RG_INIT(rg_output);
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
  out[0] = out[1] = used_output();
  CHECK(fails(rg_batch(runtime, &call, list, &index, &id, message()), RG_INVALID_ARGUMENT, "monotonically increasing"));
  CHECK(owns_nothing(&out[0]) && owns_nothing(&out[1]) && owns_nothing(&index) && owns_nothing(&id));
  rg_batching_runtime_destroy(runtime);
}

int main(void) {
  threads_meet();
  asynchronous_calls();
  waits_end();
  batch_and_back();
  return report();
}
