// Operands of batching calls and a log of their ends. For capi_batching_*test.c.
#pragma once

#include <pthread.h>

#include "raggrad/capi/raggrad_c_batching.h"
#include "raggrad/capi/test/testing.h"

// ---- operands: one row of two floats per call, keys 0, 1, 2, ... ----

enum { kMostKeys = 8 };

typedef struct Operands {
  int64_t index[kMostKeys][3];
  float grad[2];
  int64_t id;
  int64_t input_shape[2], index_shape[2], grad_shape[2];
  rg_tensor original_input, batch_index, grad_tensor, id_tensor;
  rg_unbatch_grad_call call;
} Operands;

// An owner of `keys` pieces from key `first` on, or, without any, not an owner.
static inline Operands* operands(Operands* o, int64_t id, float value, int64_t first, int64_t keys) {
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
  o->original_input = tensor(NULL, RG_FLOAT32, 2, o->input_shape);
  o->batch_index = tensor(o->index, RG_INT64, 2, o->index_shape);
  o->grad_tensor = tensor(o->grad, RG_FLOAT32, 2, o->grad_shape);
  o->id_tensor = tensor(&o->id, RG_INT64, 0, NULL);
  o->call.struct_size = sizeof o->call;
  o->call.name = "head";
  o->call.original_input = &o->original_input;
  o->call.batch_index = &o->batch_index;
  o->call.grad = &o->grad_tensor;
  o->call.id = &o->id_tensor;
  return o;
}

static inline int has_rows(const rg_output* output, int64_t rows) {
  return output->dtype == RG_FLOAT32 && output->rank == 2 && output->shape[0] == rows && output->shape[1] == 2;
}

static inline rg_batching_runtime* make_runtime(void) {
  rg_batching_runtime* runtime = NULL;
  CHECK(rg_batching_runtime_create(NULL, NULL, &runtime, message()) == RG_OK);
  return runtime;
}

static inline rg_resource_statistics statistics(rg_batching_runtime* runtime) {
  rg_resource_statistics result = RG_INIT(rg_resource_statistics);
  CHECK(rg_resource_get_statistics(runtime, RG_UNBATCH_GRAD, NULL, "head", &result, message()) == RG_OK);
  return result;
}

static inline void bring(rg_batching_runtime* runtime, int64_t id, float value) {
  Operands piece;
  rg_output out = RG_INIT(rg_output);
  CHECK(rg_unbatch_grad(runtime, &operands(&piece, id, value, 0, 0)->call, &out, message()) == RG_OK);
  CHECK(has_rows(&out, 0) && out.data == NULL);
}

// ---- what callbacks got, and how often operands were released ----

typedef struct Log {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int calls, released;
  rg_status status;
  char text[256];
  int32_t num_outputs;
  rg_output output;
} Log;

static inline void log_init(Log* log) {
  memset(log, 0, sizeof *log);
  log->output.struct_size = sizeof log->output;
  pthread_mutex_init(&log->mutex, NULL);
  pthread_cond_init(&log->changed, NULL);
}

static inline void done(void* user, rg_status status, const char* why, rg_output* const* outputs, int32_t num_outputs) {
  Log* log = user;
  pthread_mutex_lock(&log->mutex);
  ++log->calls;
  log->status = status;
  strncpy(log->text, why, sizeof log->text - 1);
  log->num_outputs = num_outputs;
  if (num_outputs > 0) log->output = *outputs[0];
  for (int32_t i = 1; i < num_outputs; ++i) rg_output_free(NULL, outputs[i]);
  pthread_cond_signal(&log->changed);
  pthread_mutex_unlock(&log->mutex);
}

static inline void released(void* argument) { ++((Log*)argument)->released; }

static inline void await_call(Log* log) {
  pthread_mutex_lock(&log->mutex);
  while (log->calls == 0) pthread_cond_wait(&log->changed, &log->mutex);
  pthread_mutex_unlock(&log->mutex);
}
