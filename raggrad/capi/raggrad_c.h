// raggrad for C11, and for everything that can call C. README.md beside this file has an example.
//
//   rg_output out, unique;
//   char text[256];
//   rg_error error = {text, sizeof text};
//   if (rg_sparse_segment_grad_v2(NULL, RG_MEAN, &grad, &indices, &ids, &table_rows, &out, &unique, &error) != RG_OK) {
//     fprintf(stderr, "%s\n", text);
//   }
//   rg_output_free(NULL, &out);
//   rg_output_free(NULL, &unique);
//
// Every function that computes takes a context (null: all defaults), its operands, the outputs it fills and a place for
// a message (may be null), and returns a code. raggrad/ops/<family>/<family>.h and the README.md beside it specify what
// each operator computes: shapes, types, errors and memory.
//
// Nothing here aborts or prints. A null pointer where something is needed, one that is not aligned, or a rank,
// dimension, dtype or device that does not exist, is RG_INVALID_ARGUMENT. On failure all outputs are zeroed and own
// nothing. Operands are read only during the call. All functions may be called from several threads at a time.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RG_API __attribute__((visibility("default")))
#else
#define RG_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Changes when programs have to be compiled again. Compare it with the library's, rg_abi_version().
#define RG_ABI_VERSION 1
#define RG_MAX_RANK 254
#define RG_ALIGNMENT 64

// The canonical codes.
typedef int32_t rg_status;
enum {
  RG_OK = 0,
  RG_CANCELLED = 1,
  RG_INVALID_ARGUMENT = 3,
  RG_DEADLINE_EXCEEDED = 4,
  RG_NOT_FOUND = 5,
  RG_ALREADY_EXISTS = 6,
  RG_RESOURCE_EXHAUSTED = 8,
  RG_UNIMPLEMENTED = 12,
  RG_INTERNAL = 13,
  RG_UNAVAILABLE = 14
};

// Element types: TensorFlow's numbers.
enum {
  RG_FLOAT32 = 1,
  RG_FLOAT64 = 2,
  RG_INT32 = 3,
  RG_UINT8 = 4,
  RG_INT16 = 5,
  RG_INT8 = 6,
  RG_STRING = 7,  // elements are rg_string
  RG_COMPLEX64 = 8,
  RG_INT64 = 9,
  RG_BOOL = 10,
  RG_QINT8 = 11,
  RG_QUINT8 = 12,
  RG_QINT32 = 13,
  RG_BFLOAT16 = 14,
  RG_QINT16 = 15,
  RG_QUINT16 = 16,
  RG_UINT16 = 17,
  RG_COMPLEX128 = 18,
  RG_HALF = 19,
  RG_UINT32 = 22,
  RG_UINT64 = 23
};

// Devices: DLPack's numbers. Operands must be in host memory: for RG_CUDA functions return RG_UNIMPLEMENTED. Device
// memory is for C++ (raggrad/cuda/cuda.h).
enum { RG_CPU = 1, RG_CUDA = 2 };

// A string that does not own its bytes; no NUL at the end.
typedef struct rg_string {
  const char* data;
  size_t size;
} rg_string;

// Somebody else's dense, row-major array.
typedef struct rg_tensor {
  const void* data;  // aligned as C aligns its elements; may be null if there are none
  int32_t dtype;
  int32_t device;
  int32_t rank;          // 0: a scalar
  const int64_t* shape;  // [rank]; may be null if rank is 0
} rg_tensor;

// One element of a variant array: a ragged tensor, or nothing.
typedef struct rg_ragged {
  int32_t missing;                 // not 0: the other fields are ignored
  int32_t num_splits;              // of nested_splits
  const rg_tensor* nested_splits;  // outermost first
  rg_tensor values;
} rg_ragged;

// An array of any rank whose elements are ragged tensors.
typedef struct rg_variant_array {
  int32_t rank;
  const int64_t* shape;  // [rank]; may be null if rank is 0
  int64_t num_elements;  // the product of the shape
  const rg_ragged* elements;
} rg_variant_array;

// An array that a function returns; rg_output_free gives its memory back. `data` is null if there are no elements.
// `bytes` is the size of the allocation: the elements and, for strings, the characters they point to.
typedef struct rg_output {
  void* data;
  size_t bytes;
  int32_t dtype;
  int32_t device;
  int32_t rank;
  int64_t shape[RG_MAX_RANK];
} rg_output;

// A buffer for a message: at most `capacity` bytes, always with a NUL at the end; empty on success.
typedef struct rg_error {
  char* message;
  size_t capacity;
} rg_error;

// Describes an output when a function asks for its memory.
typedef struct rg_output_spec {
  int32_t index;  // position in the function's list of outputs
  int32_t dtype;
  int32_t rank;
  const int64_t* shape;  // [rank]
  size_t bytes;
} rg_output_spec;

typedef void (*rg_task)(void* argument, int64_t task);

enum { RG_ACCUMULATION_DEFAULT = 0, RG_ACCUMULATION_SEQUENTIAL = 1, RG_ACCUMULATION_FAST = 2 };

// Everything a call takes from its surroundings. By default all fields but struct_size are zero; rg_context_init sets
// them. Fields are only ever added at the end; struct_size tells the library which of them the program knows.
typedef struct rg_context {
  size_t struct_size;
  void* user;  // handed to the callbacks

  // allocate returns at least `bytes` bytes (more than 0) aligned to RG_ALIGNMENT, or null if there is no memory.
  // `output` is null for scratch. Called by the thread that called the function. Set both callbacks or neither (null:
  // the C library's heap).
  void* (*allocate)(void* user, size_t bytes, const rg_output_spec* output);
  void (*deallocate)(void* user, void* pointer, size_t bytes);

  // Calls task(argument, t) once for every t in [0, tasks), in any order, on any threads, and returns when all are
  // done. Null: the library's own thread pool.
  void (*parallel_for)(void* user, int64_t tasks, rg_task task, void* argument);
  int32_t num_workers;  // with parallel_for: how many tasks can run at a time, at least 1. Without: 0, or 1 to use no
                        // thread but the caller's.

  int32_t accumulation;  // RG_ACCUMULATION_...
  const char* isa;       // "x86-64-v3", ...; null: RAGGRAD_ISA in the environment, or else the best the machine has
} rg_context;

// The defaults. struct_size: sizeof(rg_context), as the program sees it.
RG_API void rg_context_init(rg_context* context, size_t struct_size);

// Gives the memory of an output back, to the context's deallocate, and zeroes it. The context must have the user,
// allocate and deallocate that the output was made with. An output that owns nothing, or null, is fine.
RG_API void rg_output_free(const rg_context* context, rg_output* output);

RG_API const char* rg_version(void);  // "major.minor.patch"
RG_API int32_t rg_abi_version(void);
RG_API const char* rg_code_name(rg_status code);      // "INVALID_ARGUMENT", ...; "UNKNOWN" if it is none
RG_API const char* rg_dtype_name(int32_t dtype);      // "float32", ...; "invalid" if it is none
RG_API int32_t rg_dtype_from_name(const char* name);  // 0 if there is no such name
RG_API size_t rg_dtype_size(int32_t dtype);           // bytes per element; 0 if it is none

// SparseSegment{Sum,Mean,SqrtN}GradV2 and ...Grad.
enum { RG_SUM = 0, RG_MEAN = 1, RG_SQRTN = 2 };
RG_API rg_status rg_sparse_segment_grad_v2(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                           const rg_tensor* indices, const rg_tensor* segment_ids,
                                           const rg_tensor* dense_output_dim0, rg_output* output,
                                           rg_output* sorted_unique_indices, rg_error* error);
RG_API rg_status rg_sparse_segment_grad(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                        const rg_tensor* indices, const rg_tensor* segment_ids,
                                        const rg_tensor* output_dim0, rg_output* output, rg_error* error);

// SparseSegment{Sum,Mean,SqrtN} and ...WithNumSegments.
RG_API rg_status rg_sparse_segment(const rg_context* context, int32_t combiner, const rg_tensor* data,
                                   const rg_tensor* indices, const rg_tensor* segment_ids, rg_output* output,
                                   rg_error* error);
RG_API rg_status rg_sparse_segment_with_num_segments(const rg_context* context, int32_t combiner, const rg_tensor* data,
                                                     const rg_tensor* indices, const rg_tensor* segment_ids,
                                                     const rg_tensor* num_segments, rg_output* output, rg_error* error);

RG_API rg_status rg_sparse_fill_empty_rows(const rg_context* context, const rg_tensor* indices, const rg_tensor* values,
                                           const rg_tensor* dense_shape, const rg_tensor* default_value,
                                           rg_output* output_indices, rg_output* output_values,
                                           rg_output* empty_row_indicator, rg_output* reverse_index_map,
                                           rg_error* error);
RG_API rg_status rg_ragged_fill_empty_rows(const rg_context* context, const rg_tensor* value_rowids,
                                           const rg_tensor* values, const rg_tensor* nrows,
                                           const rg_tensor* default_value, rg_output* output_value_rowids,
                                           rg_output* output_values, rg_output* empty_row_indicator,
                                           rg_output* reverse_index_map, rg_error* error);
RG_API rg_status rg_sparse_fill_empty_rows_grad(const rg_context* context, const rg_tensor* reverse_index_map,
                                                const rg_tensor* grad_values, rg_output* d_values,
                                                rg_output* d_default_value, rg_error* error);
RG_API rg_status rg_ragged_fill_empty_rows_grad(const rg_context* context, const rg_tensor* reverse_index_map,
                                                const rg_tensor* grad_values, rg_output* d_values,
                                                rg_output* d_default_value, rg_error* error);

RG_API rg_status rg_sparse_slice(const rg_context* context, const rg_tensor* indices, const rg_tensor* values,
                                 const rg_tensor* shape, const rg_tensor* start, const rg_tensor* size,
                                 rg_output* output_indices, rg_output* output_values, rg_output* output_shape,
                                 rg_error* error);
RG_API rg_status rg_sparse_slice_grad(const rg_context* context, const rg_tensor* backprop_val_grad,
                                      const rg_tensor* input_indices, const rg_tensor* input_start,
                                      const rg_tensor* output_indices, rg_output* val_grad, rg_error* error);

// A variant array that a function made. `array` can be handed to other functions as long as this is not freed.
typedef struct rg_variant_output {
  rg_variant_array array;
  struct {
    void* data;
    size_t bytes;
  } blocks[3];  // the memory: values, splits, and what `array` points to. For rg_variant_output_free.
} rg_variant_output;

// As rg_output_free.
RG_API void rg_variant_output_free(const rg_context* context, rg_variant_output* output);

// The context's allocate is asked for three outputs: the values of all elements, all their splits, their description.
RG_API rg_status rg_ragged_tensor_to_variant(const rg_context* context, const rg_tensor* rt_nested_splits,
                                             int32_t num_splits, const rg_tensor* rt_dense_values,
                                             int32_t batched_input, rg_variant_output* encoded_ragged, rg_error* error);

// output_nested_splits: [output_ragged_rank]; may be null if that is 0. Needs more scratch than the C++ function: about
// 140 bytes per element and 110 for each of its splits.
RG_API rg_status rg_ragged_tensor_from_variant(const rg_context* context, const rg_variant_array* encoded_ragged,
                                               int64_t input_ragged_rank, int64_t output_ragged_rank,
                                               int32_t values_dtype, int32_t splits_dtype,
                                               rg_output* output_nested_splits, rg_output* output_dense_values,
                                               rg_error* error);

// Needs about 140 bytes of scratch per element more than the C++ function. The elements' nested_splits are ignored.
RG_API rg_status rg_ragged_tensor_to_variant_grad(const rg_context* context,
                                                  const rg_variant_array* encoded_ragged_grad,
                                                  const rg_tensor* row_splits, const rg_tensor* dense_values_shape,
                                                  int32_t values_dtype, rg_output* dense_values_grad, rg_error* error);

#ifdef __cplusplus
}  // extern "C"
#endif
