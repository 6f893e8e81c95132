// Memory of the program that counts requests, and fails when told to. For capi_*test.c.
#pragma once

#include "raggrad/capi/test/operands.h"

enum { kMostBlocks = 64 };

typedef struct Heap {
  int requests, fail_at;  // fail_at: the request that gets nothing; -1: none
  int live, outputs;
  size_t live_bytes;
  int misalign;                   // not 0: memory is 8 bytes past a multiple of 64
  int several_calls;              // not 0: outputs of several functions come from here
  unsigned asked;                 // bits: outputs that were asked for
  int device_requests;            // of `requests`
  rg_output blocks[kMostBlocks];  // of device memory
} Heap;

// Counts a request. Returns whether it is granted.
static inline int heap_grants(Heap* heap, int32_t kind, size_t bytes, const rg_output_spec* output) {
  CHECK(bytes > 0);
  if (kind == RG_CUDA) ++heap->device_requests;
  if (heap->requests++ == heap->fail_at) return 0;
  if (output != NULL) {
    size_t elements = 1;
    for (int32_t i = 0; i < output->rank; ++i) elements *= (size_t)output->shape[i];
    CHECK(output->struct_size == sizeof *output && output->index >= 0 && output->index < kMostOutputs);
    CHECK(output->device_kind == kind && output->device_number == 0);
    CHECK(heap->several_calls || (heap->asked >> output->index & 1) == 0);
    CHECK(output->bytes == bytes && bytes >= elements * rg_dtype_size(output->dtype));
    heap->asked |= 1u << output->index;
    ++heap->outputs;
  }
  ++heap->live;
  heap->live_bytes += bytes;
  return 1;
}

static inline void* heap_allocate(void* user, size_t bytes, const rg_output_spec* output) {
  Heap* heap = user;
  if (!heap_grants(heap, RG_CPU, bytes, output)) return NULL;
  char* memory = aligned_alloc(RG_ALIGNMENT, (bytes / RG_ALIGNMENT + 2) * RG_ALIGNMENT);
  return memory + (heap->misalign ? 8 : 0);
}

static inline void heap_deallocate(void* user, void* pointer, size_t bytes) {
  Heap* heap = user;
  --heap->live;
  heap->live_bytes -= bytes;
  free((char*)pointer - (heap->misalign ? 8 : 0));
}

// Device memory comes from copies of zeros: the program has no other way to get some.
static inline void* heap_device_allocate(void* user, size_t bytes, const rg_output_spec* output) {
  Heap* heap = user;
  if (!heap_grants(heap, RG_CUDA, bytes, output)) return NULL;
  const int64_t size = (int64_t)bytes + RG_ALIGNMENT;
  void* zeros = calloc((size_t)size, 1);
  const rg_tensor from = tensor(zeros, RG_UINT8, 1, &size);
  for (int i = 0; i < kMostBlocks; ++i) {
    if (heap->blocks[i].data != NULL) continue;
    heap->blocks[i].struct_size = sizeof heap->blocks[i];
    CHECK(rg_copy_tensor(NULL, &from, RG_CUDA, 0, &heap->blocks[i], NULL) == RG_OK);
    free(zeros);
    return (char*)heap->blocks[i].data + (heap->misalign ? 8 : 0);
  }
  CHECK(!"there is no place for another block");
  free(zeros);
  return NULL;
}

static inline void heap_device_deallocate(void* user, void* pointer, size_t bytes) {
  Heap* heap = user;
  --heap->live;
  heap->live_bytes -= bytes;
  const void* memory = (char*)pointer - (heap->misalign ? 8 : 0);
  for (int i = 0; i < kMostBlocks; ++i) {
    if (heap->blocks[i].data != memory) continue;
    rg_output_free(NULL, &heap->blocks[i]);
    return;
  }
  CHECK(!"memory is given back that did not come from here");
}

static inline rg_context heap_context(Heap* heap) {
  memset(heap, 0, sizeof *heap);
  heap->fail_at = -1;
  rg_context context = RG_INIT(rg_context);
  context.user = heap;
  context.allocate = heap_allocate;
  context.deallocate = heap_deallocate;
  context.device_allocate = heap_device_allocate;
  context.device_deallocate = heap_device_deallocate;
  return context;
}

// All memory of an operator comes from the heap and goes back to it, whichever request fails.
static inline void check_memory(const Operator* operator) {
  static Heap heap;
  rg_output out[kMostOutputs];
  rg_context context = heap_context(&heap);
  heap.several_calls = operator->several_calls;
  CHECK(run_operator(operator, & context, out) == RG_OK);
  CHECK(heap.live == operator->count && heap.outputs >= operator->count);
  CHECK(operator->several_calls || heap.asked ==(1u << operator->count) - 1);
  CHECK((heap.device_requests > 0) == (place == RG_CUDA));
  size_t bytes = 0;
  for (int i = 0; i < operator->count; ++i) bytes += out[i].bytes;
  CHECK(heap.live_bytes == bytes);
  free_outputs(&context, out);
  CHECK(heap.live == 0 && heap.live_bytes == 0);

  for (int fail_at = 0, requests = heap.requests; fail_at < requests; ++fail_at) {
    context = heap_context(&heap);
    heap.several_calls = operator->several_calls;
    heap.fail_at = fail_at;
    CHECK(run_operator(operator, & context, out) == RG_RESOURCE_EXHAUSTED && text[0] != '\0');
    for (int i = 0; i < kMostOutputs; ++i) CHECK(owns_nothing(&out[i]));
    CHECK(heap.live == 0 && heap.live_bytes == 0);
  }

  context = heap_context(&heap);
  heap.misalign = 1;
  CHECK(fails(run_operator(operator, & context, out), RG_INVALID_ARGUMENT, "memory is not aligned [context."));
  CHECK(strstr(text, "allocate: expected a multiple of 64]") != NULL && owns_nothing(&out[0]) && heap.live == 0);
}
