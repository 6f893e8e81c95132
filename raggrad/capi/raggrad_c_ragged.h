// Ragged tensors as arrays of variants: raggrad/ops/ragged_variant/ragged_variant.h specifies them. Splits of elements
// and of results are always in host memory; values may be in device memory.
#pragma once

#include "raggrad/capi/raggrad_c_base.h"

#ifdef __cplusplus
extern "C" {
#endif

// A ragged tensor.
typedef struct rg_ragged {
  size_t struct_size;
  const rg_tensor* values;
  const rg_tensor* const* nested_splits;  // [num_splits], outermost first; may be null if there are none
  int32_t num_splits;
} rg_ragged;

// An array of any rank whose elements are ragged tensors.
typedef struct rg_variant_array {
  size_t struct_size;
  int32_t rank;
  const int64_t* shape;              // [rank]; may be null if rank is 0
  int64_t num_elements;              // the product of the shape
  const rg_ragged* const* elements;  // [num_elements]; a null pointer is a missing element
} rg_variant_array;

// A piece of memory. This struct never changes.
typedef struct rg_block {
  void* data;
  size_t bytes;
  int32_t device_kind;
  int32_t device_number;
} rg_block;

// A variant array that a function made.
typedef struct rg_variant_output {
  size_t struct_size;
  const rg_variant_array* array;  // can be handed to other functions as long as this is not freed
  rg_block blocks[3];             // the memory: values, splits, and what `array` points to
} rg_variant_output;

// As rg_output_free.
RG_API void rg_variant_output_free(const rg_context* context, rg_variant_output* output);

// The context is asked for three outputs: the values of all elements, all their splits, their description. The last two
// are in host memory.
RG_API rg_status rg_ragged_tensor_to_variant(const rg_context* context, const rg_tensor* const* rt_nested_splits,
                                             int32_t num_splits, const rg_tensor* rt_dense_values,
                                             int32_t batched_input, rg_variant_output* encoded_ragged, rg_error* error);

// output_nested_splits: [output_ragged_rank]; may be null if that is 0. Needs more scratch than the C++ function: 96
// bytes per element and 72 for each of its splits.
RG_API rg_status rg_ragged_tensor_from_variant(const rg_context* context, const rg_variant_array* encoded_ragged,
                                               int64_t input_ragged_rank, int64_t output_ragged_rank,
                                               int32_t values_dtype, int32_t splits_dtype,
                                               rg_output* const* output_nested_splits, rg_output* output_dense_values,
                                               rg_error* error);

// Needs 96 bytes of scratch per element more than the C++ function. The elements' nested_splits are ignored.
RG_API rg_status rg_ragged_tensor_to_variant_grad(const rg_context* context,
                                                  const rg_variant_array* encoded_ragged_grad,
                                                  const rg_tensor* row_splits, const rg_tensor* dense_values_shape,
                                                  int32_t values_dtype, rg_output* dense_values_grad, rg_error* error);

#ifdef __cplusplus
}  // extern "C"
#endif
