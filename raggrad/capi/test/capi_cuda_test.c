// The operators through the C interface with operands on a GPU, for programs without CUDA's runtime. Skipped without
// one.
#include <pthread.h>
#include <time.h>

#include "raggrad/capi/test/batching_calls.h"
#include "raggrad/capi/test/heap.h"
#include "raggrad/capi/test/ragged_operators.h"

#define STREAM_PER_THREAD ((void*)2)  // CUDA's handle of the stream that every thread has

// ---- results and memory ----

static void results(const Operator* operator) {
  if (operator->host_only) return;
  void* const streams[] = {NULL, STREAM_PER_THREAD};
  for (int i = 0; i < 2; ++i) {
    rg_context context = RG_INIT(rg_context);
    context.stream = streams[i];
    rg_output out[kMostOutputs];
    const rg_status status = run_operator(operator, & context, out);
    if (status != RG_OK) printf("%s: %s\n", operator->name, text);
    CHECK(status == RG_OK && text[0] == '\0');
    free_outputs(&context, out);
  }
}

static void memory(const Operator* operator) {
  const int before = failures;
  if (!operator->host_only) check_memory(operator);
  if (failures != before) printf("%s: wrong use of memory\n", operator->name);
}

static void test_results(void) { for_each_operator(results); }
static void test_memory(void) { for_each_operator(memory); }

// Calls of several threads, each on its own stream.
static void* many_calls(void* argument) {
  (void)argument;
  const int64_t rows[] = {2, 2};
  rg_context context = RG_INIT(rg_context);
  context.stream = STREAM_PER_THREAD;
  const rg_tensor host_values = tensor(grad_data, RG_FLOAT32, 2, rows),
                  host_indices = tensor(unique_data, RG_INT32, 1, two);
  rg_output values = RG_INIT(rg_output), indices = RG_INIT(rg_output);
  CHECK(rg_copy_tensor(&context, &host_values, RG_CUDA, 0, &values, NULL) == RG_OK);
  CHECK(rg_copy_tensor(&context, &host_indices, RG_CUDA, 0, &indices, NULL) == RG_OK);
  const rg_tensor v = rg_output_view(&values), i = rg_output_view(&indices);
  const rg_indexed_slices slices = {sizeof slices, &v, &i, 7};
  for (int call = 0; call < 50; ++call) {
    static const float want[14] = {0, 0, 0, 0, 2, 4, 0, 0, 0, 0, 8, 16};
    rg_output dense = RG_INIT(rg_output), got = RG_INIT(rg_output);
    CHECK(rg_indexed_slices_to_dense(&context, &slices, &dense, NULL) == RG_OK);
    const rg_tensor view = rg_output_view(&dense);
    CHECK(rg_copy_tensor(&context, &view, RG_CPU, 0, &got, NULL) == RG_OK);
    CHECK(holds(&got, RG_FLOAT32, 2, seven_by_two, want));
    rg_output_free(&context, &dense);
    rg_output_free(NULL, &got);
  }
  rg_output_free(&context, &values);
  rg_output_free(&context, &indices);
  return NULL;
}

static void test_threads(void) {
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) CHECK(pthread_create(&threads[i], NULL, many_calls, NULL) == 0);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
}

// ---- devices ----

static void test_devices(void) {
  rg_output out = RG_INIT(rg_output), back = RG_INIT(rg_output);
  const rg_tensor empty = tensor(NULL, RG_FLOAT32, 2, (const int64_t[]){0, 3});
  CHECK(rg_copy_tensor(NULL, &empty, RG_CUDA, 0, &out, message()) == RG_OK);
  CHECK(out.data == NULL && out.bytes == 0 && out.device_kind == RG_CUDA && out.shape[1] == 3);
  rg_output_free(NULL, &out);
  CHECK(owns_nothing(&out));

  const rg_tensor numbers = tensor(grad_data, RG_FLOAT32, 1, four);
  CHECK(fails(rg_copy_tensor(NULL, &numbers, RG_CUDA, 1000, &out, message()), RG_INVALID_ARGUMENT,
              "there is no such GPU"));
  CHECK(owns_nothing(&out));
  CHECK(rg_copy_tensor(NULL, &numbers, RG_CUDA, 0, &out, message()) == RG_OK);
  const rg_tensor there = rg_output_view(&out);
  rg_output twin = RG_INIT(rg_output);
  CHECK(rg_copy_tensor(NULL, &there, RG_CUDA, 0, &twin, message()) == RG_OK && twin.data != out.data);
  const rg_tensor second = rg_output_view(&twin);
  CHECK(rg_copy_tensor(NULL, &second, RG_CPU, 0, &back, message()) == RG_OK);
  CHECK(is_vector(&back, RG_FLOAT32, 4, grad_data));
  rg_output_free(NULL, &back);
  rg_output_free(NULL, &twin);
  rg_output_free(NULL, &out);

  // Operands on several devices, and a GPU that does not exist.
  Gradient g = gradient();
  rg_output unique = RG_INIT(rg_output);
#define GRADIENT() \
  rg_sparse_segment_grad_v2(NULL, RG_SUM, &g.grad, &g.indices, &g.segment_ids, &g.dim0, &out, &unique, message())
  const rg_tensor indices = g.indices;
  g.indices = tensor(index_data, RG_INT32, 1, three);
  CHECK(fails(GRADIENT(), RG_INVALID_ARGUMENT, "operands are on different devices [indices: "));
  g.indices = indices;
  g.dim0 = operand(&dim0_data, RG_INT32, 0, NULL);
  CHECK(GRADIENT() == RG_INVALID_ARGUMENT);
  g.dim0 = tensor(&dim0_data, RG_INT32, 0, NULL);
  g.grad.device_number = g.indices.device_number = g.segment_ids.device_number = 1000;
  CHECK(fails(GRADIENT(), RG_INVALID_ARGUMENT, "there is no such GPU"));
  CHECK(owns_nothing(&out) && owns_nothing(&unique));
  g = gradient();
  CHECK(GRADIENT() == RG_OK);  // an error leaves nothing behind
  rg_output_free(NULL, &out);
  rg_output_free(NULL, &unique);
  drop_operands();
}

static void test_data_errors(void) {
  static const int32_t too_large[] = {5, 7, 5};
  Gradient g = gradient();
  g.indices = operand(too_large, RG_INT32, 1, three);
  rg_output out = used_output(), unique = used_output();
  CHECK(fails(GRADIENT(), RG_INVALID_ARGUMENT, "7"));
  CHECK(owns_nothing(&out) && owns_nothing(&unique));
  rg_segment_plan* plan = (rg_segment_plan*)&g;
  CHECK(rg_segment_plan_make(NULL, &g.indices, &g.segment_ids, 7, 2, &plan, message()) == RG_INVALID_ARGUMENT);
  CHECK(plan == NULL);

  // A padded form leaves both faults in its report: a bad id, and too little room.
  for (int64_t room = 2; room > 0; --room) {
    rg_output report_of = RG_INIT(rg_output);
    CHECK(rg_sparse_segment_grad_v2_padded(NULL, RG_SUM, &g.grad, &g.indices, &g.segment_ids, &g.dim0, room, &out,
                                           &unique, &report_of, message()) == RG_OK);
    const rg_tensor view = rg_output_view(&report_of);
    int64_t count = -1;
    CHECK(rg_check_padded(NULL, &view, &count, message()) == (room == 2 ? RG_INVALID_ARGUMENT : RG_RESOURCE_EXHAUSTED));
    CHECK(count == 0);
    rg_output_free(NULL, &out);
    rg_output_free(NULL, &unique);
    rg_output_free(NULL, &report_of);
    g.indices = operand(index_data, RG_INT32, 1, three);  // good ids, for the second round
  }
  drop_operands();
}

static void test_plans(void) {
  const Gradient g = gradient();
  rg_segment_plan* plan;
  CHECK(rg_segment_plan_make(NULL, &g.indices, &g.segment_ids, 7, 2, &plan, message()) == RG_OK);
  rg_segment_plan_sizes sizes = RG_INIT(rg_segment_plan_sizes);
  CHECK(rg_segment_plan_get_sizes(plan, &sizes, message()) == RG_OK);
  CHECK(sizes.num_ids == 3 && sizes.num_unique == 2 && sizes.table_rows == 7 && sizes.ascending == 1);
  CHECK(rg_segment_plan_check_made_from(NULL, plan, &g.indices, &g.segment_ids, message()) == RG_OK);
  const rg_tensor in_host_memory = tensor(grad_data, RG_FLOAT32, 2, two_by_two);
  rg_output out = RG_INIT(rg_output);
  CHECK(rg_sparse_segment_grad_with_plan(NULL, RG_SUM, &in_host_memory, plan, &out, message()) == RG_INVALID_ARGUMENT);
  rg_segment_plan_destroy(plan);
  drop_operands();
}

// ---- batching ----

static void test_unbatch_grad(void) {
  rg_batching_runtime* runtime = make_runtime();
  Operands owner, piece;
  Log log;
  log_init(&log);
  operands(&owner, 0, 1, 0, 2);
  operands(&piece, 1, 5, 0, 0);
  owner.grad_tensor = operand(owner.grad, RG_FLOAT32, 2, owner.grad_shape);
  piece.grad_tensor = operand(piece.grad, RG_FLOAT32, 2, piece.grad_shape);
  CHECK(rg_unbatch_grad_async(runtime, &owner.call, done, &log, message()) == RG_OK && log.calls == 0);
  rg_output out = RG_INIT(rg_output), joined = RG_INIT(rg_output);
  CHECK(rg_unbatch_grad(runtime, &piece.call, &out, message()) == RG_OK);
  CHECK(has_rows(&out, 0) && out.device_kind == RG_CUDA && out.data == NULL);
  CHECK(log.calls == 1 && log.status == RG_OK && log.num_outputs == 1 && has_rows(&log.output, 2));
  CHECK(log.output.device_kind == RG_CUDA && log.output.device_number == 0);
  const rg_tensor view = rg_output_view(&log.output);
  static const float want[] = {1, 1, 5, 5};
  CHECK(rg_copy_tensor(NULL, &view, RG_CPU, 0, &joined, message()) == RG_OK);
  CHECK(holds(&joined, RG_FLOAT32, 2, two_by_two, want));
  rg_output_free(NULL, &joined);
  rg_output_free(NULL, &log.output);

  piece.call.stream = STREAM_PER_THREAD;
  CHECK(fails(rg_unbatch_grad(runtime, &piece.call, &out, message()), RG_INVALID_ARGUMENT, "cudaStreamPerThread"));
  rg_batching_runtime_destroy(runtime);
  drop_operands();
}

int main(void) {
  static const struct {
    const char* name;
    void (*run)(void);
  } tests[] = {{"Results", test_results},         {"Memory", test_memory},          {"Threads", test_threads},
               {"Devices", test_devices},         {"DataErrors", test_data_errors}, {"Plans", test_plans},
               {"UnbatchGrad", test_unbatch_grad}};
  const int there_is_a_gpu = rg_cuda_status(message()) == RG_OK;
  place = RG_CUDA;
  for (int64_t i = 0; i < COUNT(tests); ++i) {  // in the words of GoogleTest, which tools/gpu_tests.sh counts
    const int before = failures;
    const time_t start = time(NULL);
    if (there_is_a_gpu) {
      tests[i].run();
    } else if (i == 0) {
      puts(text);
    }
    const char* outcome = !there_is_a_gpu ? "[  SKIPPED ]" : failures == before ? "[       OK ]" : "[  FAILED  ]";
    printf("%s CapiCudaTest.%s (%.0f ms)\n", outcome, tests[i].name, 1000 * difftime(time(NULL), start));
  }
  return report();
}
