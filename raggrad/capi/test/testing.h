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
  static _Thread_local rg_error error;
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

static inline rg_tensor tensor(const void* data, int32_t dtype, int32_t rank, const int64_t* shape) {
  const rg_tensor t = {data, dtype, RG_CPU, rank, shape};
  return t;
}

static inline int owns_nothing(const rg_output* output) {
  const unsigned char* bytes = (const unsigned char*)output;
  for (size_t i = 0; i < sizeof *output; ++i) {
    if (bytes[i] != 0) return 0;
  }
  return 1;
}
