// Checks, messages and tensors for tests in C: C11 without extensions, each test a program of its own. Thread-safe.
#pragma once

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raggrad/capi/raggrad_c.h"

static atomic_int failures = 0;

static inline void check(int good, const char* what, const char* file, int line) {
  if (good) return;
  ++failures;
  printf("%s:%d: failed: %s\n", file, line, what);
}
#define CHECK(condition) check(condition, #condition, __FILE__, __LINE__)

// The exit status of the test.
static inline int report(void) {
  if (failures == 0) {
    puts("all checks passed");
  } else {
    printf("%d checks failed\n", (int)failures);
  }
  return failures != 0;
}

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof((array)[0])))

static _Thread_local char text[512];  // the last message

// An argument for `error` that uses the first bytes of `text`, which is full of something else.
static inline rg_error* message_of(size_t capacity) {
  static _Thread_local rg_error error = RG_INIT(rg_error);
  memset(text, '#', sizeof text);
  error.message = text;
  error.capacity = capacity;
  return &error;
}
static inline rg_error* message(void) { return message_of(sizeof text); }

// Whether a call failed as it should, with `part` in its message.
static inline int fails(rg_status got, rg_status want, const char* part) {
  if (got == want && strstr(text, part) != NULL) return 1;
  printf("got %s: %s\n", rg_code_name(got), text);
  return 0;
}

// A tensor in host memory.
static inline rg_tensor tensor(const void* data, int32_t dtype, int32_t rank, const int64_t* shape) {
  const rg_tensor t = {sizeof t, data, dtype, RG_CPU, 0, rank, shape};
  return t;
}

static inline int owns_nothing(const rg_output* output) {
  const unsigned char* bytes = (const unsigned char*)output;
  for (size_t i = sizeof output->struct_size; i < sizeof *output; ++i) {
    if (bytes[i] != 0) return 0;
  }
  return output->struct_size == sizeof *output;
}

// An output full of something else, as a program may have it before a call.
static inline rg_output used_output(void) {
  rg_output output;
  memset(&output, 0x55, sizeof output);
  output.struct_size = sizeof output;
  return output;
}

// Whether an output in host memory has this type, shape and content.
static inline int holds(const rg_output* output, int32_t dtype, int32_t rank, const int64_t* shape,
                        const void* values) {
  size_t bytes = rg_dtype_size(dtype);
  for (int32_t i = 0; i < rank; ++i) bytes *= (size_t)shape[i];
  return output->dtype == dtype && output->device_kind == RG_CPU && output->device_number == 0 &&
         output->rank == rank && (rank == 0 || memcmp(output->shape, shape, (size_t)rank * sizeof *shape) == 0) &&
         output->bytes == bytes && (bytes == 0 || memcmp(output->data, values, bytes) == 0);
}
static inline int is_vector(const rg_output* output, int32_t dtype, int64_t size, const void* values) {
  return holds(output, dtype, 1, &size, values);
}
