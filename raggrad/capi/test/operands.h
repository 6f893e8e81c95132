// Operands that lie where a test wants them, and operators to call with them. For capi_*test.c.
#pragma once

#include "raggrad/capi/test/testing.h"

static int32_t place = RG_CPU;  // the kind of device that operands are on

enum { kMostCopies = 64, kMostOutputs = 5 };
static rg_output copies[kMostCopies];  // operands in device memory
static int num_copies = 0;

// A tensor where operands are. It lives until drop_operands.
static inline rg_tensor operand(const void* data, int32_t dtype, int32_t rank, const int64_t* shape) {
  const rg_tensor in_host_memory = tensor(data, dtype, rank, shape);
  if (place == RG_CPU) return in_host_memory;
  rg_output* copy = &copies[num_copies++];
  const rg_output fresh = RG_INIT(rg_output);
  *copy = fresh;
  CHECK(num_copies <= kMostCopies && rg_copy_tensor(NULL, &in_host_memory, place, 0, copy, message()) == RG_OK);
  return rg_output_view(copy);
}

static inline void drop_operands(void) {
  while (num_copies > 0) rg_output_free(NULL, &copies[--num_copies]);
}

// A tensor of the program's own that a call may change: a copy, made by the context's allocator.
static inline rg_mutable_tensor changeable(const rg_context* context, const void* data, int32_t dtype, int32_t rank,
                                           const int64_t* shape, rg_output* memory, rg_status* status) {
  const rg_tensor from = tensor(data, dtype, rank, shape);
  if (*status == RG_OK) *status = rg_copy_tensor(context, &from, place, 0, memory, message());
  const rg_mutable_tensor t = {sizeof t, memory->data, dtype, place, 0, rank, shape};
  return t;
}

// One operator with its smallest interesting operands.
typedef struct Operator {
  const char* name;
  rg_status (*run)(const rg_context* context, rg_output* out);
  void (*check)(const rg_output* out);  // of outputs in host memory
  int count;                            // of outputs
  unsigned host_outputs;                // bits: outputs that are in host memory, wherever the operands are
  int several_calls;                    // not 0: run calls several functions, each with outputs of its own
  int host_only;                        // not 0: has strings or weights
} Operator;

// Runs an operator and checks its outputs, which are returned.
static inline rg_status run_operator(const Operator* operator, const rg_context* context, rg_output* out) {
  for (int i = 0; i < kMostOutputs; ++i) {
    const rg_output fresh = RG_INIT(rg_output);
    out[i] = fresh;
  }
  const rg_status status = operator->run(context, out);
  drop_operands();
  if (status != RG_OK) return status;
  rg_output seen[kMostOutputs];
  for (int i = 0; i < operator->count; ++i) {
    const int32_t kind = operator->host_outputs>> i & 1 ? RG_CPU : place;
    CHECK(out[i].device_kind == kind && out[i].device_number == 0);
    seen[i] = used_output();
    if (kind == RG_CPU) {
      seen[i] = out[i];
    } else {
      rg_context fetch = RG_INIT(rg_context);
      if (context != NULL) fetch.stream = context->stream;
      const rg_tensor view = rg_output_view(&out[i]);
      CHECK(rg_copy_tensor(&fetch, &view, RG_CPU, 0, &seen[i], message()) == RG_OK);
    }
  }
  const int before = failures;
  operator->check(seen);
  if (failures != before) printf("%s: wrong results\n", operator->name);
  for (int i = 0; i < operator->count; ++i) {
    if (seen[i].data != out[i].data) rg_output_free(NULL, &seen[i]);
  }
  return RG_OK;
}

static inline void free_outputs(const rg_context* context, rg_output* out) {
  for (int i = 0; i < kMostOutputs; ++i) {
    rg_output_free(context, &out[i]);
    CHECK(owns_nothing(&out[i]));
  }
}
