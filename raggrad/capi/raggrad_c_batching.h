// Batch, Unbatch and UnbatchGrad for C11: calls of several threads that meet in a named resource.
//
//   rg_batching_runtime* runtime;
//   rg_batching_runtime_create(NULL, NULL, &runtime, &error);
//   rg_unbatch_grad_call call = RG_INIT(rg_unbatch_grad_call);
//   call.original_input = &x; call.batch_index = &index; call.grad = &g; call.id = &id;
//   if (rg_unbatch_grad(runtime, &call, &joined, &error) != RG_OK) puts(text);  // waits
//
// raggrad/ops/batching/batching.h and the README.md there specify the operators, their errors and their differences
// from TensorFlow. The rules of raggrad_c.h on structs, operands, errors and memory hold here too. Only the gradients
// of UnbatchGrad may be in device memory; everything else is in host memory.
#pragma once

#include "raggrad/capi/raggrad_c_base.h"

#ifdef __cplusplus
extern "C" {
#endif

// Owns resources. All functions may be called from several threads at a time, except rg_batching_runtime_destroy.
typedef struct rg_batching_runtime rg_batching_runtime;
// Ends waits early. One token may be given to any number of calls.
typedef struct rg_cancellation rg_cancellation;

enum { RG_BATCH = 0, RG_UNBATCH = 1, RG_UNBATCH_GRAD = 2 };  // kinds of resources

#define RG_NO_DEADLINE INT64_MAX

// Limits of one resource. rg_resource_limits_init sets the defaults.
typedef struct rg_resource_limits {
  size_t struct_size;
  int64_t max_pieces;              // stored and not yet collected
  int64_t max_bytes;               // in those pieces
  int64_t max_waiters;             // calls that wait
  int64_t max_piece_age_micros;    // older unclaimed pieces are dropped
  int64_t default_timeout_micros;  // of a wait that has none of its own
} rg_resource_limits;
RG_API void rg_resource_limits_init(rg_resource_limits* limits, size_t struct_size);

// Counters since the resource was made, then its present contents.
typedef struct rg_resource_statistics {
  size_t struct_size;
  int64_t calls, succeeded, failed, cancelled, deadline_exceeded, refused, pieces_expired, pieces_dropped;
  int64_t pieces, bytes, waiters;
} rg_resource_statistics;

// Members that all calls have:
//   container, name  of the resource; null is ""
//   wait_micros      time limit of the wait. 0: as long as the resource says; RG_NO_DEADLINE; below 0: not at all
//   cancellation     ends the wait with RG_CANCELLED; may be null

typedef struct rg_unbatch_grad_call {
  size_t struct_size;
  const char* container;
  const char* name;
  const rg_tensor* original_input;  // the call is an owner if this has elements; data may be null
  const rg_tensor* batch_index;     // int64 [calls, 3]
  const rg_tensor* grad;
  const rg_tensor* id;  // int64 []
  int64_t wait_micros;
  const rg_cancellation* cancellation;
  int32_t strict;  // not 0: refuse what TensorFlow accepts although it is most likely a mistake
  // Null: the gradient is copied if it is needed after the call has returned. Otherwise it is never copied, and
  // release(release_argument) is called when it is not needed any longer: once, by any thread, even if the call fails.
  void (*release)(void* argument);
  void* release_argument;
  // A cudaStream_t, if grad is in device memory: the work that computes grad has been queued on it, and an owner's
  // result is made on it. It must live until the piece has been joined or dropped. The stream of the context is not
  // used. RG_INVALID_ARGUMENT if it is cudaStreamPerThread or being captured into a graph.
  void* stream;
} rg_unbatch_grad_call;

typedef struct rg_unbatch_call {
  size_t struct_size;
  const char* container;
  const char* name;
  const rg_tensor* batched_tensor;
  const rg_tensor* batch_index;
  const rg_tensor* id;
  int64_t timeout_micros;  // of the resource, if this call makes it, as in TensorFlow
  int64_t wait_micros;
  const rg_cancellation* cancellation;
} rg_unbatch_call;

typedef struct rg_batch_call {
  size_t struct_size;
  const char* container;
  const char* name;
  const rg_tensor* const* in_tensors;  // [num_tensors]
  int32_t num_tensors;
  // The fields up to num_allowed_batch_sizes count only if this call makes the resource.
  int64_t num_batch_threads;
  int64_t max_batch_size;
  int64_t batch_timeout_micros;
  int64_t max_enqueued_batches;
  const int64_t* allowed_batch_sizes;  // may be null
  int32_t num_allowed_batch_sizes;
  const char* batching_queue;  // null: ""
  int64_t wait_micros;
  const rg_cancellation* cancellation;
  void (*release)(void* argument);  // of all tensors together, as in rg_unbatch_grad_call
  void* release_argument;
} rg_batch_call;

// The context's callbacks may be called by any thread until the runtime is destroyed. Null limits: the defaults.
RG_API rg_status rg_batching_runtime_create(const rg_context* context, const rg_resource_limits* limits,
                                            rg_batching_runtime** runtime, rg_error* error);
// Closes all resources. When it returns, callbacks have run, operands have been released, and the context's callbacks
// are not called any more. No thread may be in another function of the runtime; rg_cancellation_cancel is fine at any
// time. A callback may call this but must not touch the runtime afterwards; an operand of the call that this thread is
// in is released when that call returns. Null is fine.
RG_API void rg_batching_runtime_destroy(rg_batching_runtime* runtime);

RG_API rg_cancellation* rg_cancellation_create(void);  // null: no memory
RG_API void rg_cancellation_cancel(const rg_cancellation* cancellation);
RG_API int32_t rg_cancellation_cancelled(const rg_cancellation* cancellation);  // 0 or 1
// Calls that wait with the token keep waiting. Null is fine.
RG_API void rg_cancellation_destroy(rg_cancellation* cancellation);

// These wait for the result. Outputs are given to rg_output_free with the runtime's context; one in device memory from
// the library's pool needs its stream to be that of the call.
RG_API rg_status rg_unbatch_grad(rg_batching_runtime* runtime, const rg_unbatch_grad_call* call,
                                 rg_output* batched_grad, rg_error* error);
RG_API rg_status rg_unbatch(rg_batching_runtime* runtime, const rg_unbatch_call* call, rg_output* unbatched_tensor,
                            rg_error* error);
RG_API rg_status rg_batch(rg_batching_runtime* runtime, const rg_batch_call* call,
                          rg_output* const* batched_tensors,  // [num_tensors]
                          rg_output* batch_index, rg_output* id, rg_error* error);

// These call back instead of waiting. If they return RG_OK, `done` is called exactly once: by this thread before they
// return, or later by another one (batching.h says which). If they return an error, `done` is not called. It is never
// called under a lock: it may sleep, call the library again and destroy the runtime. It owns the outputs: one tensor,
// or for Batch the tensors, batch_index and id. Their structs, and the message, are gone when it returns. The
// message is cut after 1023 bytes. After a failure there are no outputs.
typedef void (*rg_batching_done)(void* user, rg_status status, const char* message, rg_output* const* outputs,
                                 int32_t num_outputs);
RG_API rg_status rg_unbatch_grad_async(rg_batching_runtime* runtime, const rg_unbatch_grad_call* call,
                                       rg_batching_done done, void* user, rg_error* error);
RG_API rg_status rg_unbatch_async(rg_batching_runtime* runtime, const rg_unbatch_call* call, rg_batching_done done,
                                  void* user, rg_error* error);
RG_API rg_status rg_batch_async(rg_batching_runtime* runtime, const rg_batch_call* call, rg_batching_done done,
                                void* user, rg_error* error);

// A resource is RG_NOT_FOUND before a call has made it and after it was closed.
RG_API rg_status rg_resource_set_limits(rg_batching_runtime* runtime, int32_t kind, const char* container,
                                        const char* name, const rg_resource_limits* limits, rg_error* error);
RG_API rg_status rg_resource_get_limits(rg_batching_runtime* runtime, int32_t kind, const char* container,
                                        const char* name, rg_resource_limits* limits, rg_error* error);
RG_API rg_status rg_resource_get_statistics(rg_batching_runtime* runtime, int32_t kind, const char* container,
                                            const char* name, rg_resource_statistics* statistics, rg_error* error);
// Ends waiting calls with RG_CANCELLED, drops the pieces and frees the name.
RG_API rg_status rg_resource_close(rg_batching_runtime* runtime, int32_t kind, const char* container, const char* name,
                                   rg_error* error);
RG_API void rg_batching_close_all(rg_batching_runtime* runtime);

#ifdef __cplusplus
}  // extern "C"
#endif
