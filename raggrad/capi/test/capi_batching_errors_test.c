// The batching operators through the C interface: limits, statistics, and arguments that are refused.
#include "raggrad/capi/test/batching_calls.h"

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
  rg_output out = RG_INIT(rg_output);
  operands(&piece, 2, 1, 0, 0);
  CHECK(fails(rg_unbatch_grad(runtime, &piece.call, &out, message()), RG_RESOURCE_EXHAUSTED, "pieces"));
  got.max_pieces = 2;
  CHECK(rg_resource_set_limits(runtime, RG_UNBATCH_GRAD, "", "head", &got, message()) == RG_OK);
  CHECK(rg_unbatch_grad(runtime, &piece.call, &out, message()) == RG_OK);
  rg_resource_statistics s = statistics(runtime);
  CHECK(s.calls == 3 && s.succeeded == 2 && s.failed == 1 && s.refused == 1 && s.pieces == 2 && s.bytes == 16);
  s.struct_size = 0;
  CHECK(fails(rg_resource_get_statistics(runtime, RG_UNBATCH_GRAD, "", "head", &s, message()), RG_INVALID_ARGUMENT,
              "[statistics.struct_size: expected 96 to 4096 bytes, got 0]"));
  CHECK(fails(rg_resource_close(runtime, 3, "", "head", message()), RG_INVALID_ARGUMENT, "no such kind"));
  rg_batching_runtime_destroy(runtime);
}

static void wrong_arguments(void) {
  rg_batching_runtime* runtime = make_runtime();
  Operands owner;
  rg_output out = RG_INIT(rg_output);
  operands(&owner, 0, 1, 0, 1);
  CHECK(fails(rg_batching_runtime_create(NULL, NULL, NULL, message()), RG_INVALID_ARGUMENT, "NULL [runtime]"));
  rg_batching_runtime* none = runtime;
  rg_resource_limits limits = {0};
  CHECK(fails(rg_batching_runtime_create(NULL, &limits, &none, message()), RG_INVALID_ARGUMENT,
              "[limits.struct_size: exp"));
  CHECK(none == NULL);
  rg_context context = {0};
  CHECK(fails(rg_batching_runtime_create(&context, NULL, &none, message()), RG_INVALID_ARGUMENT,
              "[context.struct_size: e"));
  CHECK(fails(rg_unbatch_grad(NULL, &owner.call, &out, message()), RG_INVALID_ARGUMENT, "NULL [runtime]"));
  CHECK(fails(rg_unbatch_grad(runtime, NULL, &out, message()), RG_INVALID_ARGUMENT, "NULL [call]"));
  CHECK(fails(rg_unbatch_grad(runtime, &owner.call, NULL, message()), RG_INVALID_ARGUMENT, "output is NULL"));
  CHECK(fails(rg_unbatch_grad_async(runtime, &owner.call, NULL, NULL, message()), RG_INVALID_ARGUMENT, "NULL [done]"));
  CHECK(fails(rg_unbatch(runtime, NULL, &out, message()), RG_INVALID_ARGUMENT, "NULL [call]"));
  CHECK(fails(rg_batch(runtime, NULL, NULL, &out, &out, message()), RG_INVALID_ARGUMENT, "given twice"));
  rg_batch_call batch = {.struct_size = sizeof batch, .num_tensors = 1};
  rg_output more[] = {RG_INIT(rg_output), RG_INIT(rg_output)};
  rg_output *const list[] = {&out}, *const nothing[] = {NULL}, *const twice[] = {&more[0]};
  CHECK(fails(rg_batch(runtime, &batch, NULL, &more[0], &more[1], message()), RG_INVALID_ARGUMENT, "batched_tensors"));
  CHECK(fails(rg_batch(runtime, &batch, nothing, &more[0], &more[1], message()), RG_INVALID_ARGUMENT, "tensors[0]"));
  CHECK(fails(rg_batch(runtime, &batch, twice, &more[0], &more[1], message()), RG_INVALID_ARGUMENT, "given twice"));
  CHECK(fails(rg_batch(runtime, &batch, list, &more[0], &more[1], message()), RG_INVALID_ARGUMENT, "call.in_tensors"));
  const rg_tensor* const no_tensor[] = {NULL};
  batch.in_tensors = no_tensor;
  CHECK(fails(rg_batch(runtime, &batch, list, &more[0], &more[1], message()), RG_INVALID_ARGUMENT,
              "an argument is NULL [call.in_tensors[0]]"));
  CHECK(fails(rg_resource_close(NULL, RG_BATCH, "", "", message()), RG_INVALID_ARGUMENT, "NULL [runtime]"));
  CHECK(
      fails(rg_resource_set_limits(runtime, RG_BATCH, "", "", NULL, message()), RG_INVALID_ARGUMENT, "NULL [limits]"));
  const rg_tensor* const right = owner.call.grad;
  owner.call.grad = NULL;
  CHECK(fails(rg_unbatch_grad(runtime, &owner.call, &out, message()), RG_INVALID_ARGUMENT, "NULL [call.grad]"));
  owner.call.grad = right;
  owner.call.struct_size = 3;
  CHECK(fails(rg_unbatch_grad(runtime, &owner.call, &out, message()), RG_INVALID_ARGUMENT, "[call.struct_size: expe"));
  struct {
    rg_unbatch_grad_call known;
    int64_t unknown;
  } newer = {owner.call, 1};
  newer.known.struct_size = sizeof newer;
  Log log;
  log_init(&log);
  newer.known.release = released;
  newer.known.release_argument = &log;
  CHECK(
      fails(rg_unbatch_grad(runtime, &newer.known, &out, message()), RG_INVALID_ARGUMENT, "does not know [call, byte"));
  CHECK(log.released == 1);
  newer.unknown = 0;
  CHECK(rg_unbatch_grad(runtime, &newer.known, &out, NULL) == RG_OK && has_rows(&out, 1) && log.released == 2);
  rg_output_free(NULL, &out);
  owner.call.strict = 1;
  owner.index[0][1] = 77;  // strict refuses that
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

static void* allocate_odd(void* user, size_t bytes, const rg_output_spec* output) {
  (void)user, (void)output;
  return (char*)aligned_alloc(RG_ALIGNMENT, (bytes / RG_ALIGNMENT + 2) * RG_ALIGNMENT) + 8;
}

static void deallocate_odd(void* user, void* pointer, size_t bytes) {
  (void)user, (void)bytes;
  free((char*)pointer - 8);
}

static void memory_that_is_not_aligned(void) {
  rg_context context = RG_INIT(rg_context);
  context.allocate = allocate_odd;
  context.deallocate = deallocate_odd;
  rg_batching_runtime* runtime = NULL;
  CHECK(rg_batching_runtime_create(&context, NULL, &runtime, message()) == RG_OK);
  const char* const expected = "memory is not aligned [context.allocate: expected a multiple of 64]";
  Operands owner;
  rg_output out = RG_INIT(rg_output);
  operands(&owner, 0, 1, 0, 1);
  CHECK(fails(rg_unbatch_grad(runtime, &owner.call, &out, message()), RG_INVALID_ARGUMENT, expected));
  Log log;
  log_init(&log);
  CHECK(rg_unbatch_grad_async(runtime, &owner.call, done, &log, message()) == RG_OK);
  CHECK(log.calls == 1 && log.status == RG_INVALID_ARGUMENT && strstr(log.text, expected) != NULL);
  rg_batching_runtime_destroy(runtime);
}

int main(void) {
  limits_and_statistics();
  memory_that_is_not_aligned();
  wrong_arguments();
  return report();
}
