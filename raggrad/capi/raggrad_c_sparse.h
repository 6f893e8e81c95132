// Rows and slices of sparse tensors: raggrad/ops/sparse_fill_empty_rows and raggrad/ops/sparse_slice specify them.
#pragma once

#include "raggrad/capi/raggrad_c_base.h"

#ifdef __cplusplus
extern "C" {
#endif

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

// output_shape is always in host memory.
RG_API rg_status rg_sparse_slice(const rg_context* context, const rg_tensor* indices, const rg_tensor* values,
                                 const rg_tensor* shape, const rg_tensor* start, const rg_tensor* size,
                                 rg_output* output_indices, rg_output* output_values, rg_output* output_shape,
                                 rg_error* error);
RG_API rg_status rg_sparse_slice_grad(const rg_context* context, const rg_tensor* backprop_val_grad,
                                      const rg_tensor* input_indices, const rg_tensor* input_start,
                                      const rg_tensor* output_indices, rg_output* val_grad, rg_error* error);

#ifdef __cplusplus
}  // extern "C"
#endif
