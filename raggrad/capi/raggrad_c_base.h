// Shared by all headers of the C API: codes, types, tensors, contexts, outputs. Include raggrad_c.h, which has the
// rules.
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
#define RG_ABI_VERSION 2
#define RG_MAX_RANK 254
#define RG_ALIGNMENT 64

// Initialises a struct: rg_context context = RG_INIT(rg_context);
#define RG_INIT(type) \
  { .struct_size = sizeof(type) }

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

// Kinds of devices: DLPack's numbers. RG_CPU is host memory, of device number 0. RG_CUDA is memory of the GPU that CUDA
// gives this number. The operands' device decides where a call computes and where its outputs are, whatever the
// thread's current device is; it is an error if they are on several. Operands that decide about shapes (table_rows,
// num_segments, dense_shape, ...) are always in host memory, as the operators' headers say.
enum { RG_CPU = 1, RG_CUDA = 2 };

// A string that does not own its bytes; no NUL at the end.
typedef struct rg_string {
  const char* data;
  size_t size;
} rg_string;

// Somebody else's dense, row-major array.
typedef struct rg_tensor {
  size_t struct_size;
  const void* data;  // aligned as C aligns its elements; may be null if there are none
  int32_t dtype;
  int32_t device_kind;
  int32_t device_number;
  int32_t rank;          // 0: a scalar
  const int64_t* shape;  // [rank]; may be null if rank is 0
} rg_tensor;

// The same for an array that a function changes.
typedef struct rg_mutable_tensor {
  size_t struct_size;
  void* data;
  int32_t dtype;
  int32_t device_kind;
  int32_t device_number;
  int32_t rank;
  const int64_t* shape;
} rg_mutable_tensor;

// An array that a function returns; rg_output_free gives its memory back. `data` is null if there are no elements.
// `bytes` is the size of the allocation: the elements and, for strings, the characters they point to.
typedef struct rg_output {
  size_t struct_size;
  void* data;
  size_t bytes;
  int32_t dtype;
  int32_t device_kind;
  int32_t device_number;
  int32_t rank;
  int64_t shape[RG_MAX_RANK];
} rg_output;

// An output as an operand. It refers to the output, which must stay as it is meanwhile.
static inline rg_tensor rg_output_view(const rg_output* output) {
  const rg_tensor view = {sizeof(rg_tensor),     output->data, output->dtype, output->device_kind,
                          output->device_number, output->rank, output->shape};
  return view;
}

// A buffer for a message: at most `capacity` bytes, always with a NUL at the end; empty on success.
typedef struct rg_error {
  size_t struct_size;
  char* message;
  size_t capacity;
} rg_error;

// Describes an output when a function asks for its memory.
typedef struct rg_output_spec {
  size_t struct_size;
  size_t bytes;
  int32_t index;  // position in the function's list of outputs
  int32_t dtype;
  int32_t device_kind;
  int32_t device_number;
  int32_t rank;
  const int64_t* shape;  // [rank]
} rg_output_spec;

typedef void (*rg_task)(void* argument, int64_t task);

// The order of sums (raggrad/core/context.h).
enum {
  RG_ACCUMULATION_DEFAULT = 0,
  RG_ACCUMULATION_SEQUENTIAL = 1,
  RG_ACCUMULATION_FAST = 2,
  RG_ACCUMULATION_REPRODUCIBLE = 3  // the same bits for every order of the ids, on CPU and GPU
};

// Everything a call takes from its surroundings. RG_INIT gives the defaults.
typedef struct rg_context {
  size_t struct_size;
  void* user;  // handed to the callbacks

  // Host memory. allocate returns at least `bytes` bytes (more than 0) aligned to RG_ALIGNMENT, or null if there is no
  // memory. `output` is null for scratch. Called by the thread that called the function. Set both callbacks or neither
  // (null: the C library's heap). An output without elements needs no memory, so nothing is asked for it.
  void* (*allocate)(void* user, size_t bytes, const rg_output_spec* output);
  void (*deallocate)(void* user, void* pointer, size_t bytes);

  // The same for device memory. device_allocate is called while the operands' GPU is the current device; its memory is
  // used in the order of `stream`. device_deallocate may be called while work that uses the memory is still queued on
  // that stream. Null: a pool of the library's own, freed in the order of the stream.
  void* (*device_allocate)(void* user, size_t bytes, const rg_output_spec* output);
  void (*device_deallocate)(void* user, void* pointer, size_t bytes);
  void* stream;  // a cudaStream_t of the operands' GPU, on which work is queued; null: the default stream

  // Calls task(argument, t) once for every t in [0, tasks), in any order, on any threads, and returns when all are
  // done. Null: the library's own thread pool.
  void (*parallel_for)(void* user, int64_t tasks, rg_task task, void* argument);
  int32_t num_workers;  // with parallel_for: how many tasks can run at a time, at least 1. Without: 0, or 1 to use no
                        // thread but the caller's.

  int32_t accumulation;  // RG_ACCUMULATION_...
  const char* isa;       // "x86-64-v3", ...; null: RAGGRAD_ISA in the environment, or else the best the machine has
} rg_context;

// Gives the memory of an output back and zeroes all but its struct_size. The context must have the user, the callbacks
// and the stream that the output was made with. Device memory from the library's pool is freed in the order of that
// stream. An output that owns nothing, or null, is fine. Nothing happens if the context or the output is invalid.
RG_API void rg_output_free(const rg_context* context, rg_output* output);

// RG_OK if there are a GPU and the CUDA library, so that calls may have device memory. Otherwise the message says what
// is missing.
RG_API rg_status rg_cuda_status(rg_error* error);

// Copies a tensor into memory of a device, and waits for the copy: for programs without CUDA's runtime. The context's
// stream is one of that device, or of the tensor's GPU if the copy goes to the host. Not for strings.
RG_API rg_status rg_copy_tensor(const rg_context* context, const rg_tensor* from, int32_t device_kind,
                                int32_t device_number, rg_output* output, rg_error* error);

RG_API const char* rg_version(void);  // "major.minor.patch"
RG_API int32_t rg_abi_version(void);
RG_API const char* rg_code_name(rg_status code);      // "INVALID_ARGUMENT", ...; "UNKNOWN" if it is none
RG_API const char* rg_dtype_name(int32_t dtype);      // "float32", ...; "invalid" if it is none
RG_API int32_t rg_dtype_from_name(const char* name);  // 0 if there is no such name
RG_API size_t rg_dtype_size(int32_t dtype);           // bytes per element; 0 if it is none

#ifdef __cplusplus
}  // extern "C"
#endif
