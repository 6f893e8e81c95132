// Padded forms: operators whose result has the size that the caller names, not one that depends on the data.
// raggrad/ops/padded.h specifies what lies behind the rows or entries, and the report.
//
//   rg_sparse_slice_padded(&context, &indices, &values, &shape, &start, &size, 1000, &kept_indices, &kept_values,
//                          &kept_shape, &report, &error);
//   ...                                                                    // more work on the stream
//   const rg_tensor view = rg_output_view(&report);
//   rg_check_padded(&context, &view, &count, &error);                      // waits
//
// On a GPU these calls wait for nothing and can be captured in a CUDA graph. The report, a uint64 vector, then tells of
// bad operands and of too little room; the other outputs mean nothing in that case. In host memory these errors are
// returned at once.
#pragma once

#include "raggrad/capi/raggrad_c_segment.h"
#include "raggrad/capi/raggrad_c_sparse.h"

#ifdef __cplusplus
extern "C" {
#endif

// Reads a report: waits for the stream and stores the number of rows or entries. Returns the error of the form without
// padding if the operands have a fault, and RG_RESOURCE_EXHAUSTED if there was too little room.
RG_API rg_status rg_check_padded(const rg_context* context, const rg_tensor* report, int64_t* count, rg_error* error);

RG_API rg_status rg_sparse_segment_grad_v2_padded(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                                  const rg_tensor* indices, const rg_tensor* segment_ids,
                                                  const rg_tensor* dense_output_dim0, int64_t max_unique,
                                                  rg_output* output, rg_output* sorted_unique_indices,
                                                  rg_output* report, rg_error* error);
RG_API rg_status rg_indexed_slices_coalesce_padded(const rg_context* context, const rg_indexed_slices* slices,
                                                   int64_t max_unique, rg_output* slice_values,
                                                   rg_output* slice_indices, rg_output* report, rg_error* error);
RG_API rg_status rg_sparse_fill_empty_rows_padded(const rg_context* context, const rg_tensor* indices,
                                                  const rg_tensor* values, const rg_tensor* dense_shape,
                                                  const rg_tensor* default_value, int64_t max_full,
                                                  rg_output* output_indices, rg_output* output_values,
                                                  rg_output* empty_row_indicator, rg_output* reverse_index_map,
                                                  rg_output* report, rg_error* error);
RG_API rg_status rg_ragged_fill_empty_rows_padded(const rg_context* context, const rg_tensor* value_rowids,
                                                  const rg_tensor* values, const rg_tensor* nrows,
                                                  const rg_tensor* default_value, int64_t max_full,
                                                  rg_output* output_value_rowids, rg_output* output_values,
                                                  rg_output* empty_row_indicator, rg_output* reverse_index_map,
                                                  rg_output* report, rg_error* error);
// output_shape is always in host memory.
RG_API rg_status rg_sparse_slice_padded(const rg_context* context, const rg_tensor* indices, const rg_tensor* values,
                                        const rg_tensor* shape, const rg_tensor* start, const rg_tensor* size,
                                        int64_t max_kept, rg_output* output_indices, rg_output* output_values,
                                        rg_output* output_shape, rg_output* report, rg_error* error);

#ifdef __cplusplus
}  // extern "C"
#endif
