// The C ABI of raggrad 0.2.0, written by tools/record_abi.py. If this file no longer compiles, programs
// that use that version would break: change the code, or RG_ABI_VERSION and this file (make abi-record).
// clang-format off
#include <raggrad/capi/raggrad_c.h>
#include <raggrad/capi/raggrad_c_batching.h>

#define IS(expression, type) _Generic((expression), type: 1, default: 0)
#define MEMBER(name, member, offset, type) \
  _Static_assert(offsetof(name, member) == (offset) && IS(((name*)0)->member, type), #name "." #member)

_Static_assert(RG_ABI_VERSION == 2, "RG_ABI_VERSION");
_Static_assert(RG_MAX_RANK == 254, "RG_MAX_RANK");
_Static_assert(RG_ALIGNMENT == 64, "RG_ALIGNMENT");
_Static_assert(RG_OK == 0, "RG_OK");
_Static_assert(RG_CANCELLED == 1, "RG_CANCELLED");
_Static_assert(RG_INVALID_ARGUMENT == 3, "RG_INVALID_ARGUMENT");
_Static_assert(RG_DEADLINE_EXCEEDED == 4, "RG_DEADLINE_EXCEEDED");
_Static_assert(RG_NOT_FOUND == 5, "RG_NOT_FOUND");
_Static_assert(RG_ALREADY_EXISTS == 6, "RG_ALREADY_EXISTS");
_Static_assert(RG_RESOURCE_EXHAUSTED == 8, "RG_RESOURCE_EXHAUSTED");
_Static_assert(RG_UNIMPLEMENTED == 12, "RG_UNIMPLEMENTED");
_Static_assert(RG_INTERNAL == 13, "RG_INTERNAL");
_Static_assert(RG_UNAVAILABLE == 14, "RG_UNAVAILABLE");
_Static_assert(RG_FLOAT32 == 1, "RG_FLOAT32");
_Static_assert(RG_FLOAT64 == 2, "RG_FLOAT64");
_Static_assert(RG_INT32 == 3, "RG_INT32");
_Static_assert(RG_UINT8 == 4, "RG_UINT8");
_Static_assert(RG_INT16 == 5, "RG_INT16");
_Static_assert(RG_INT8 == 6, "RG_INT8");
_Static_assert(RG_STRING == 7, "RG_STRING");
_Static_assert(RG_COMPLEX64 == 8, "RG_COMPLEX64");
_Static_assert(RG_INT64 == 9, "RG_INT64");
_Static_assert(RG_BOOL == 10, "RG_BOOL");
_Static_assert(RG_QINT8 == 11, "RG_QINT8");
_Static_assert(RG_QUINT8 == 12, "RG_QUINT8");
_Static_assert(RG_QINT32 == 13, "RG_QINT32");
_Static_assert(RG_BFLOAT16 == 14, "RG_BFLOAT16");
_Static_assert(RG_QINT16 == 15, "RG_QINT16");
_Static_assert(RG_QUINT16 == 16, "RG_QUINT16");
_Static_assert(RG_UINT16 == 17, "RG_UINT16");
_Static_assert(RG_COMPLEX128 == 18, "RG_COMPLEX128");
_Static_assert(RG_HALF == 19, "RG_HALF");
_Static_assert(RG_UINT32 == 22, "RG_UINT32");
_Static_assert(RG_UINT64 == 23, "RG_UINT64");
_Static_assert(RG_CPU == 1, "RG_CPU");
_Static_assert(RG_CUDA == 2, "RG_CUDA");
_Static_assert(RG_ACCUMULATION_DEFAULT == 0, "RG_ACCUMULATION_DEFAULT");
_Static_assert(RG_ACCUMULATION_SEQUENTIAL == 1, "RG_ACCUMULATION_SEQUENTIAL");
_Static_assert(RG_ACCUMULATION_FAST == 2, "RG_ACCUMULATION_FAST");
_Static_assert(RG_ACCUMULATION_REPRODUCIBLE == 3, "RG_ACCUMULATION_REPRODUCIBLE");
_Static_assert(RG_SUM == 0, "RG_SUM");
_Static_assert(RG_MEAN == 1, "RG_MEAN");
_Static_assert(RG_SQRTN == 2, "RG_SQRTN");
_Static_assert(RG_SGD == 0, "RG_SGD");
_Static_assert(RG_ADAGRAD == 1, "RG_ADAGRAD");
_Static_assert(RG_ADAM == 2, "RG_ADAM");
_Static_assert(RG_ROWWISE_ADAGRAD == 3, "RG_ROWWISE_ADAGRAD");
_Static_assert(RG_BY_WEIGHTS == 0, "RG_BY_WEIGHTS");
_Static_assert(RG_BY_COUNT == 1, "RG_BY_COUNT");
_Static_assert(RG_BATCH == 0, "RG_BATCH");
_Static_assert(RG_UNBATCH == 1, "RG_UNBATCH");
_Static_assert(RG_UNBATCH_GRAD == 2, "RG_UNBATCH_GRAD");
_Static_assert(IS((rg_status)0, int32_t), "rg_status");
_Static_assert(IS((rg_task)0, void (*)(void* argument, int64_t task)), "rg_task");
_Static_assert(IS((rg_batching_done)0, void (*)(void* user, rg_status status, const char* message, rg_output* const* outputs, int32_t num_outputs)), "rg_batching_done");

_Static_assert(sizeof(rg_string) == 16, "rg_string");
MEMBER(rg_string, data, 0, const char*);
MEMBER(rg_string, size, 8, size_t);

_Static_assert(sizeof(rg_tensor) >= 40, "rg_tensor");
MEMBER(rg_tensor, struct_size, 0, size_t);
MEMBER(rg_tensor, data, 8, const void*);
MEMBER(rg_tensor, dtype, 16, int32_t);
MEMBER(rg_tensor, device_kind, 20, int32_t);
MEMBER(rg_tensor, device_number, 24, int32_t);
MEMBER(rg_tensor, rank, 28, int32_t);
MEMBER(rg_tensor, shape, 32, const int64_t*);

_Static_assert(sizeof(rg_mutable_tensor) >= 40, "rg_mutable_tensor");
MEMBER(rg_mutable_tensor, struct_size, 0, size_t);
MEMBER(rg_mutable_tensor, data, 8, void*);
MEMBER(rg_mutable_tensor, dtype, 16, int32_t);
MEMBER(rg_mutable_tensor, device_kind, 20, int32_t);
MEMBER(rg_mutable_tensor, device_number, 24, int32_t);
MEMBER(rg_mutable_tensor, rank, 28, int32_t);
MEMBER(rg_mutable_tensor, shape, 32, const int64_t*);

_Static_assert(sizeof(rg_output) >= 2072, "rg_output");
MEMBER(rg_output, struct_size, 0, size_t);
MEMBER(rg_output, data, 8, void*);
MEMBER(rg_output, bytes, 16, size_t);
MEMBER(rg_output, dtype, 24, int32_t);
MEMBER(rg_output, device_kind, 28, int32_t);
MEMBER(rg_output, device_number, 32, int32_t);
MEMBER(rg_output, rank, 36, int32_t);
MEMBER(rg_output, shape[0], 40, int64_t);

_Static_assert(sizeof(rg_error) >= 24, "rg_error");
MEMBER(rg_error, struct_size, 0, size_t);
MEMBER(rg_error, message, 8, char*);
MEMBER(rg_error, capacity, 16, size_t);

_Static_assert(sizeof(rg_output_spec) >= 48, "rg_output_spec");
MEMBER(rg_output_spec, struct_size, 0, size_t);
MEMBER(rg_output_spec, bytes, 8, size_t);
MEMBER(rg_output_spec, index, 16, int32_t);
MEMBER(rg_output_spec, dtype, 20, int32_t);
MEMBER(rg_output_spec, device_kind, 24, int32_t);
MEMBER(rg_output_spec, device_number, 28, int32_t);
MEMBER(rg_output_spec, rank, 32, int32_t);
MEMBER(rg_output_spec, shape, 40, const int64_t*);

_Static_assert(sizeof(rg_context) >= 80, "rg_context");
MEMBER(rg_context, struct_size, 0, size_t);
MEMBER(rg_context, user, 8, void*);
MEMBER(rg_context, allocate, 16, void* (*)(void* user, size_t bytes, const rg_output_spec* output));
MEMBER(rg_context, deallocate, 24, void (*)(void* user, void* pointer, size_t bytes));
MEMBER(rg_context, device_allocate, 32, void* (*)(void* user, size_t bytes, const rg_output_spec* output));
MEMBER(rg_context, device_deallocate, 40, void (*)(void* user, void* pointer, size_t bytes));
MEMBER(rg_context, stream, 48, void*);
MEMBER(rg_context, parallel_for, 56, void (*)(void* user, int64_t tasks, rg_task task, void* argument));
MEMBER(rg_context, num_workers, 64, int32_t);
MEMBER(rg_context, accumulation, 68, int32_t);
MEMBER(rg_context, isa, 72, const char*);

_Static_assert(sizeof(rg_segment_plan_sizes) >= 48, "rg_segment_plan_sizes");
MEMBER(rg_segment_plan_sizes, struct_size, 0, size_t);
MEMBER(rg_segment_plan_sizes, num_ids, 8, int64_t);
MEMBER(rg_segment_plan_sizes, num_unique, 16, int64_t);
MEMBER(rg_segment_plan_sizes, table_rows, 24, int64_t);
MEMBER(rg_segment_plan_sizes, num_segments, 32, int64_t);
MEMBER(rg_segment_plan_sizes, ascending, 40, int32_t);

_Static_assert(sizeof(rg_indexed_slices) >= 32, "rg_indexed_slices");
MEMBER(rg_indexed_slices, struct_size, 0, size_t);
MEMBER(rg_indexed_slices, values, 8, const rg_tensor*);
MEMBER(rg_indexed_slices, indices, 16, const rg_tensor*);
MEMBER(rg_indexed_slices, table_rows, 24, int64_t);

_Static_assert(sizeof(rg_row_update) >= 80, "rg_row_update");
MEMBER(rg_row_update, struct_size, 0, size_t);
MEMBER(rg_row_update, rule, 8, int32_t);
MEMBER(rg_row_update, learning_rate, 16, double);
MEMBER(rg_row_update, epsilon, 24, double);
MEMBER(rg_row_update, beta1, 32, double);
MEMBER(rg_row_update, beta2, 40, double);
MEMBER(rg_row_update, step, 48, int64_t);
MEMBER(rg_row_update, accumulator, 56, const rg_mutable_tensor*);
MEMBER(rg_row_update, m, 64, const rg_mutable_tensor*);
MEMBER(rg_row_update, v, 72, const rg_mutable_tensor*);

_Static_assert(sizeof(rg_ragged) >= 32, "rg_ragged");
MEMBER(rg_ragged, struct_size, 0, size_t);
MEMBER(rg_ragged, values, 8, const rg_tensor*);
MEMBER(rg_ragged, nested_splits, 16, const rg_tensor* const*);
MEMBER(rg_ragged, num_splits, 24, int32_t);

_Static_assert(sizeof(rg_variant_array) >= 40, "rg_variant_array");
MEMBER(rg_variant_array, struct_size, 0, size_t);
MEMBER(rg_variant_array, rank, 8, int32_t);
MEMBER(rg_variant_array, shape, 16, const int64_t*);
MEMBER(rg_variant_array, num_elements, 24, int64_t);
MEMBER(rg_variant_array, elements, 32, const rg_ragged* const*);

_Static_assert(sizeof(rg_block) == 24, "rg_block");
MEMBER(rg_block, data, 0, void*);
MEMBER(rg_block, bytes, 8, size_t);
MEMBER(rg_block, device_kind, 16, int32_t);
MEMBER(rg_block, device_number, 20, int32_t);

_Static_assert(sizeof(rg_variant_output) >= 88, "rg_variant_output");
MEMBER(rg_variant_output, struct_size, 0, size_t);
MEMBER(rg_variant_output, array, 8, const rg_variant_array*);
MEMBER(rg_variant_output, blocks[0], 16, rg_block);

_Static_assert(sizeof(rg_weighted_ids) >= 48, "rg_weighted_ids");
MEMBER(rg_weighted_ids, struct_size, 0, size_t);
MEMBER(rg_weighted_ids, indices, 8, const rg_tensor*);
MEMBER(rg_weighted_ids, segment_ids, 16, const rg_tensor*);
MEMBER(rg_weighted_ids, plan, 24, const rg_segment_plan*);
MEMBER(rg_weighted_ids, weights, 32, const rg_tensor*);
MEMBER(rg_weighted_ids, divisor, 40, int32_t);

_Static_assert(sizeof(rg_resource_limits) >= 48, "rg_resource_limits");
MEMBER(rg_resource_limits, struct_size, 0, size_t);
MEMBER(rg_resource_limits, max_pieces, 8, int64_t);
MEMBER(rg_resource_limits, max_bytes, 16, int64_t);
MEMBER(rg_resource_limits, max_waiters, 24, int64_t);
MEMBER(rg_resource_limits, max_piece_age_micros, 32, int64_t);
MEMBER(rg_resource_limits, default_timeout_micros, 40, int64_t);

_Static_assert(sizeof(rg_resource_statistics) >= 96, "rg_resource_statistics");
MEMBER(rg_resource_statistics, struct_size, 0, size_t);
MEMBER(rg_resource_statistics, calls, 8, int64_t);
MEMBER(rg_resource_statistics, succeeded, 16, int64_t);
MEMBER(rg_resource_statistics, failed, 24, int64_t);
MEMBER(rg_resource_statistics, cancelled, 32, int64_t);
MEMBER(rg_resource_statistics, deadline_exceeded, 40, int64_t);
MEMBER(rg_resource_statistics, refused, 48, int64_t);
MEMBER(rg_resource_statistics, pieces_expired, 56, int64_t);
MEMBER(rg_resource_statistics, pieces_dropped, 64, int64_t);
MEMBER(rg_resource_statistics, pieces, 72, int64_t);
MEMBER(rg_resource_statistics, bytes, 80, int64_t);
MEMBER(rg_resource_statistics, waiters, 88, int64_t);

_Static_assert(sizeof(rg_unbatch_grad_call) >= 104, "rg_unbatch_grad_call");
MEMBER(rg_unbatch_grad_call, struct_size, 0, size_t);
MEMBER(rg_unbatch_grad_call, container, 8, const char*);
MEMBER(rg_unbatch_grad_call, name, 16, const char*);
MEMBER(rg_unbatch_grad_call, original_input, 24, const rg_tensor*);
MEMBER(rg_unbatch_grad_call, batch_index, 32, const rg_tensor*);
MEMBER(rg_unbatch_grad_call, grad, 40, const rg_tensor*);
MEMBER(rg_unbatch_grad_call, id, 48, const rg_tensor*);
MEMBER(rg_unbatch_grad_call, wait_micros, 56, int64_t);
MEMBER(rg_unbatch_grad_call, cancellation, 64, const rg_cancellation*);
MEMBER(rg_unbatch_grad_call, strict, 72, int32_t);
MEMBER(rg_unbatch_grad_call, release, 80, void (*)(void* argument));
MEMBER(rg_unbatch_grad_call, release_argument, 88, void*);
MEMBER(rg_unbatch_grad_call, stream, 96, void*);

_Static_assert(sizeof(rg_unbatch_call) >= 72, "rg_unbatch_call");
MEMBER(rg_unbatch_call, struct_size, 0, size_t);
MEMBER(rg_unbatch_call, container, 8, const char*);
MEMBER(rg_unbatch_call, name, 16, const char*);
MEMBER(rg_unbatch_call, batched_tensor, 24, const rg_tensor*);
MEMBER(rg_unbatch_call, batch_index, 32, const rg_tensor*);
MEMBER(rg_unbatch_call, id, 40, const rg_tensor*);
MEMBER(rg_unbatch_call, timeout_micros, 48, int64_t);
MEMBER(rg_unbatch_call, wait_micros, 56, int64_t);
MEMBER(rg_unbatch_call, cancellation, 64, const rg_cancellation*);

_Static_assert(sizeof(rg_batch_call) >= 128, "rg_batch_call");
MEMBER(rg_batch_call, struct_size, 0, size_t);
MEMBER(rg_batch_call, container, 8, const char*);
MEMBER(rg_batch_call, name, 16, const char*);
MEMBER(rg_batch_call, in_tensors, 24, const rg_tensor* const*);
MEMBER(rg_batch_call, num_tensors, 32, int32_t);
MEMBER(rg_batch_call, num_batch_threads, 40, int64_t);
MEMBER(rg_batch_call, max_batch_size, 48, int64_t);
MEMBER(rg_batch_call, batch_timeout_micros, 56, int64_t);
MEMBER(rg_batch_call, max_enqueued_batches, 64, int64_t);
MEMBER(rg_batch_call, allowed_batch_sizes, 72, const int64_t*);
MEMBER(rg_batch_call, num_allowed_batch_sizes, 80, int32_t);
MEMBER(rg_batch_call, batching_queue, 88, const char*);
MEMBER(rg_batch_call, wait_micros, 96, int64_t);
MEMBER(rg_batch_call, cancellation, 104, const rg_cancellation*);
MEMBER(rg_batch_call, release, 112, void (*)(void* argument));
MEMBER(rg_batch_call, release_argument, 120, void*);

void (*abi_rg_output_free)(const rg_context* context, rg_output* output) = rg_output_free;
rg_status (*abi_rg_cuda_status)(rg_error* error) = rg_cuda_status;
rg_status (*abi_rg_copy_tensor)(const rg_context* context, const rg_tensor* from, int32_t device_kind, int32_t device_number, rg_output* output, rg_error* error) = rg_copy_tensor;
const char* (*abi_rg_version)(void) = rg_version;
int32_t (*abi_rg_abi_version)(void) = rg_abi_version;
const char* (*abi_rg_code_name)(rg_status code) = rg_code_name;
const char* (*abi_rg_dtype_name)(int32_t dtype) = rg_dtype_name;
int32_t (*abi_rg_dtype_from_name)(const char* name) = rg_dtype_from_name;
size_t (*abi_rg_dtype_size)(int32_t dtype) = rg_dtype_size;
rg_status (*abi_rg_sparse_segment_grad_v2)(const rg_context* context, int32_t combiner, const rg_tensor* grad, const rg_tensor* indices, const rg_tensor* segment_ids, const rg_tensor* dense_output_dim0, rg_output* output, rg_output* sorted_unique_indices, rg_error* error) = rg_sparse_segment_grad_v2;
rg_status (*abi_rg_sparse_segment_grad)(const rg_context* context, int32_t combiner, const rg_tensor* grad, const rg_tensor* indices, const rg_tensor* segment_ids, const rg_tensor* output_dim0, rg_output* output, rg_error* error) = rg_sparse_segment_grad;
rg_status (*abi_rg_sparse_segment)(const rg_context* context, int32_t combiner, const rg_tensor* data, const rg_tensor* indices, const rg_tensor* segment_ids, rg_output* output, rg_error* error) = rg_sparse_segment;
rg_status (*abi_rg_sparse_segment_with_num_segments)(const rg_context* context, int32_t combiner, const rg_tensor* data, const rg_tensor* indices, const rg_tensor* segment_ids, const rg_tensor* num_segments, rg_output* output, rg_error* error) = rg_sparse_segment_with_num_segments;
rg_status (*abi_rg_segment_plan_make)(const rg_context* context, const rg_tensor* indices, const rg_tensor* segment_ids, int64_t table_rows, int64_t num_segments, rg_segment_plan** plan, rg_error* error) = rg_segment_plan_make;
void (*abi_rg_segment_plan_destroy)(rg_segment_plan* plan) = rg_segment_plan_destroy;
rg_status (*abi_rg_segment_plan_get_sizes)(const rg_segment_plan* plan, rg_segment_plan_sizes* sizes, rg_error* error) = rg_segment_plan_get_sizes;
rg_status (*abi_rg_segment_plan_check_made_from)(const rg_context* context, const rg_segment_plan* plan, const rg_tensor* indices, const rg_tensor* segment_ids, rg_error* error) = rg_segment_plan_check_made_from;
rg_status (*abi_rg_sparse_segment_grad_v2_with_plan)(const rg_context* context, int32_t combiner, const rg_tensor* grad, const rg_segment_plan* plan, rg_output* output, rg_output* sorted_unique_indices, rg_error* error) = rg_sparse_segment_grad_v2_with_plan;
rg_status (*abi_rg_sparse_segment_grad_with_plan)(const rg_context* context, int32_t combiner, const rg_tensor* grad, const rg_segment_plan* plan, rg_output* output, rg_error* error) = rg_sparse_segment_grad_with_plan;
rg_status (*abi_rg_sparse_segment_with_plan)(const rg_context* context, int32_t combiner, const rg_tensor* data, const rg_segment_plan* plan, rg_output* output, rg_error* error) = rg_sparse_segment_with_plan;
rg_status (*abi_rg_sparse_segment_grad_slices)(const rg_context* context, int32_t combiner, const rg_tensor* grad, const rg_tensor* indices, const rg_tensor* segment_ids, int64_t table_rows, rg_output* slice_values, rg_output* slice_indices, rg_error* error) = rg_sparse_segment_grad_slices;
rg_status (*abi_rg_indexed_slices_to_dense)(const rg_context* context, const rg_indexed_slices* slices, rg_output* dense, rg_error* error) = rg_indexed_slices_to_dense;
rg_status (*abi_rg_indexed_slices_coalesce)(const rg_context* context, const rg_indexed_slices* slices, rg_output* slice_values, rg_output* slice_indices, rg_error* error) = rg_indexed_slices_coalesce;
void (*abi_rg_row_update_init)(rg_row_update* update, size_t struct_size, int32_t rule, double learning_rate) = rg_row_update_init;
rg_status (*abi_rg_indexed_slices_apply)(const rg_context* context, const rg_indexed_slices* slices, const rg_row_update* update, const rg_mutable_tensor* table, rg_error* error) = rg_indexed_slices_apply;
rg_status (*abi_rg_sparse_segment_grad_apply)(const rg_context* context, int32_t combiner, const rg_tensor* grad, const rg_tensor* indices, const rg_tensor* segment_ids, const rg_row_update* update, const rg_mutable_tensor* table, rg_error* error) = rg_sparse_segment_grad_apply;
rg_status (*abi_rg_sparse_segment_grad_apply_with_plan)(const rg_context* context, int32_t combiner, const rg_tensor* grad, const rg_segment_plan* plan, const rg_row_update* update, const rg_mutable_tensor* table, rg_error* error) = rg_sparse_segment_grad_apply_with_plan;
rg_status (*abi_rg_sparse_fill_empty_rows)(const rg_context* context, const rg_tensor* indices, const rg_tensor* values, const rg_tensor* dense_shape, const rg_tensor* default_value, rg_output* output_indices, rg_output* output_values, rg_output* empty_row_indicator, rg_output* reverse_index_map, rg_error* error) = rg_sparse_fill_empty_rows;
rg_status (*abi_rg_ragged_fill_empty_rows)(const rg_context* context, const rg_tensor* value_rowids, const rg_tensor* values, const rg_tensor* nrows, const rg_tensor* default_value, rg_output* output_value_rowids, rg_output* output_values, rg_output* empty_row_indicator, rg_output* reverse_index_map, rg_error* error) = rg_ragged_fill_empty_rows;
rg_status (*abi_rg_sparse_fill_empty_rows_grad)(const rg_context* context, const rg_tensor* reverse_index_map, const rg_tensor* grad_values, rg_output* d_values, rg_output* d_default_value, rg_error* error) = rg_sparse_fill_empty_rows_grad;
rg_status (*abi_rg_ragged_fill_empty_rows_grad)(const rg_context* context, const rg_tensor* reverse_index_map, const rg_tensor* grad_values, rg_output* d_values, rg_output* d_default_value, rg_error* error) = rg_ragged_fill_empty_rows_grad;
rg_status (*abi_rg_sparse_slice)(const rg_context* context, const rg_tensor* indices, const rg_tensor* values, const rg_tensor* shape, const rg_tensor* start, const rg_tensor* size, rg_output* output_indices, rg_output* output_values, rg_output* output_shape, rg_error* error) = rg_sparse_slice;
rg_status (*abi_rg_sparse_slice_grad)(const rg_context* context, const rg_tensor* backprop_val_grad, const rg_tensor* input_indices, const rg_tensor* input_start, const rg_tensor* output_indices, rg_output* val_grad, rg_error* error) = rg_sparse_slice_grad;
rg_status (*abi_rg_check_padded)(const rg_context* context, const rg_tensor* report, int64_t* count, rg_error* error) = rg_check_padded;
rg_status (*abi_rg_sparse_segment_grad_v2_padded)(const rg_context* context, int32_t combiner, const rg_tensor* grad, const rg_tensor* indices, const rg_tensor* segment_ids, const rg_tensor* dense_output_dim0, int64_t max_unique, rg_output* output, rg_output* sorted_unique_indices, rg_output* report, rg_error* error) = rg_sparse_segment_grad_v2_padded;
rg_status (*abi_rg_indexed_slices_coalesce_padded)(const rg_context* context, const rg_indexed_slices* slices, int64_t max_unique, rg_output* slice_values, rg_output* slice_indices, rg_output* report, rg_error* error) = rg_indexed_slices_coalesce_padded;
rg_status (*abi_rg_sparse_fill_empty_rows_padded)(const rg_context* context, const rg_tensor* indices, const rg_tensor* values, const rg_tensor* dense_shape, const rg_tensor* default_value, int64_t max_full, rg_output* output_indices, rg_output* output_values, rg_output* empty_row_indicator, rg_output* reverse_index_map, rg_output* report, rg_error* error) = rg_sparse_fill_empty_rows_padded;
rg_status (*abi_rg_ragged_fill_empty_rows_padded)(const rg_context* context, const rg_tensor* value_rowids, const rg_tensor* values, const rg_tensor* nrows, const rg_tensor* default_value, int64_t max_full, rg_output* output_value_rowids, rg_output* output_values, rg_output* empty_row_indicator, rg_output* reverse_index_map, rg_output* report, rg_error* error) = rg_ragged_fill_empty_rows_padded;
rg_status (*abi_rg_sparse_slice_padded)(const rg_context* context, const rg_tensor* indices, const rg_tensor* values, const rg_tensor* shape, const rg_tensor* start, const rg_tensor* size, int64_t max_kept, rg_output* output_indices, rg_output* output_values, rg_output* output_shape, rg_output* report, rg_error* error) = rg_sparse_slice_padded;
void (*abi_rg_variant_output_free)(const rg_context* context, rg_variant_output* output) = rg_variant_output_free;
rg_status (*abi_rg_ragged_tensor_to_variant)(const rg_context* context, const rg_tensor* const* rt_nested_splits, int32_t num_splits, const rg_tensor* rt_dense_values, int32_t batched_input, rg_variant_output* encoded_ragged, rg_error* error) = rg_ragged_tensor_to_variant;
rg_status (*abi_rg_ragged_tensor_from_variant)(const rg_context* context, const rg_variant_array* encoded_ragged, int64_t input_ragged_rank, int64_t output_ragged_rank, int32_t values_dtype, int32_t splits_dtype, rg_output* const* output_nested_splits, rg_output* output_dense_values, rg_error* error) = rg_ragged_tensor_from_variant;
rg_status (*abi_rg_ragged_tensor_to_variant_grad)(const rg_context* context, const rg_variant_array* encoded_ragged_grad, const rg_tensor* row_splits, const rg_tensor* dense_values_shape, int32_t values_dtype, rg_output* dense_values_grad, rg_error* error) = rg_ragged_tensor_to_variant_grad;
rg_status (*abi_rg_weighted_segment)(const rg_context* context, int32_t combiner, const rg_tensor* data, const rg_weighted_ids* ids, int64_t num_segments, rg_output* output, rg_error* error) = rg_weighted_segment;
rg_status (*abi_rg_weighted_segment_grad_slices)(const rg_context* context, int32_t combiner, const rg_tensor* grad, const rg_weighted_ids* ids, int64_t table_rows, rg_output* slice_values, rg_output* slice_indices, rg_error* error) = rg_weighted_segment_grad_slices;
rg_status (*abi_rg_weighted_segment_grad)(const rg_context* context, int32_t combiner, const rg_tensor* grad, const rg_weighted_ids* ids, int32_t table_rows, rg_output* output, rg_error* error) = rg_weighted_segment_grad;
rg_status (*abi_rg_weighted_segment_grad_padded)(const rg_context* context, int32_t combiner, const rg_tensor* grad, const rg_weighted_ids* ids, int32_t table_rows, int64_t max_unique, rg_output* output, rg_output* sorted_unique_indices, rg_output* report, rg_error* error) = rg_weighted_segment_grad_padded;
rg_status (*abi_rg_weighted_segment_grad_apply)(const rg_context* context, int32_t combiner, const rg_tensor* grad, const rg_weighted_ids* ids, const rg_row_update* update, const rg_mutable_tensor* table, rg_error* error) = rg_weighted_segment_grad_apply;
rg_status (*abi_rg_weighted_segment_weights_grad)(const rg_context* context, int32_t combiner, const rg_tensor* grad, const rg_tensor* data, const rg_weighted_ids* ids, rg_output* output, rg_error* error) = rg_weighted_segment_weights_grad;
void (*abi_rg_resource_limits_init)(rg_resource_limits* limits, size_t struct_size) = rg_resource_limits_init;
rg_status (*abi_rg_batching_runtime_create)(const rg_context* context, const rg_resource_limits* limits, rg_batching_runtime** runtime, rg_error* error) = rg_batching_runtime_create;
void (*abi_rg_batching_runtime_destroy)(rg_batching_runtime* runtime) = rg_batching_runtime_destroy;
rg_cancellation* (*abi_rg_cancellation_create)(void) = rg_cancellation_create;
void (*abi_rg_cancellation_cancel)(const rg_cancellation* cancellation) = rg_cancellation_cancel;
int32_t (*abi_rg_cancellation_cancelled)(const rg_cancellation* cancellation) = rg_cancellation_cancelled;
void (*abi_rg_cancellation_destroy)(rg_cancellation* cancellation) = rg_cancellation_destroy;
rg_status (*abi_rg_unbatch_grad)(rg_batching_runtime* runtime, const rg_unbatch_grad_call* call, rg_output* batched_grad, rg_error* error) = rg_unbatch_grad;
rg_status (*abi_rg_unbatch)(rg_batching_runtime* runtime, const rg_unbatch_call* call, rg_output* unbatched_tensor, rg_error* error) = rg_unbatch;
rg_status (*abi_rg_batch)(rg_batching_runtime* runtime, const rg_batch_call* call, rg_output* const* batched_tensors, rg_output* batch_index, rg_output* id, rg_error* error) = rg_batch;
rg_status (*abi_rg_unbatch_grad_async)(rg_batching_runtime* runtime, const rg_unbatch_grad_call* call, rg_batching_done done, void* user, rg_error* error) = rg_unbatch_grad_async;
rg_status (*abi_rg_unbatch_async)(rg_batching_runtime* runtime, const rg_unbatch_call* call, rg_batching_done done, void* user, rg_error* error) = rg_unbatch_async;
rg_status (*abi_rg_batch_async)(rg_batching_runtime* runtime, const rg_batch_call* call, rg_batching_done done, void* user, rg_error* error) = rg_batch_async;
rg_status (*abi_rg_resource_set_limits)(rg_batching_runtime* runtime, int32_t kind, const char* container, const char* name, const rg_resource_limits* limits, rg_error* error) = rg_resource_set_limits;
rg_status (*abi_rg_resource_get_limits)(rg_batching_runtime* runtime, int32_t kind, const char* container, const char* name, rg_resource_limits* limits, rg_error* error) = rg_resource_get_limits;
rg_status (*abi_rg_resource_get_statistics)(rg_batching_runtime* runtime, int32_t kind, const char* container, const char* name, rg_resource_statistics* statistics, rg_error* error) = rg_resource_get_statistics;
rg_status (*abi_rg_resource_close)(rg_batching_runtime* runtime, int32_t kind, const char* container, const char* name, rg_error* error) = rg_resource_close;
void (*abi_rg_batching_close_all)(rg_batching_runtime* runtime) = rg_batching_close_all;

// Every function above is linked.
int main(void) { return abi_rg_abi_version() == RG_ABI_VERSION ? 0 : 1; }
