#include "raggrad/capi/raggrad_c_padded.h"

#include "raggrad/capi/c_call.h"
#include "raggrad/capi/c_segment.h"
#include "raggrad/ops/padded.h"
#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"
#include "raggrad/ops/sparse_segment/indexed_slices.h"
#include "raggrad/ops/sparse_slice/sparse_slice.h"

using namespace raggrad;  // NOLINT: everything here belongs to C
using raggrad::capi::CCall;
using raggrad::capi::Store;

rg_status rg_check_padded(const rg_context* context, const rg_tensor* report, int64_t* count, rg_error* error) {
  CCall call("rg_check_padded", context, error, {});
  const TensorView words = call.Read("report", report);
  if (call.Given("count", count)) *count = 0;
  return call.Run([&](const Context& ctx) { return CheckPadded(words, ctx); },
                  [&](int64_t result) { *count = result; });
}

rg_status rg_sparse_segment_grad_v2_padded(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                           const rg_tensor* indices, const rg_tensor* segment_ids,
                                           const rg_tensor* dense_output_dim0, int64_t max_unique, rg_output* output,
                                           rg_output* sorted_unique_indices, rg_output* report, rg_error* error) {
  CCall call("rg_sparse_segment_grad_v2_padded", context, error, {output, sorted_unique_indices, report});
  const SegmentCombiner combine = call.ReadCombiner(combiner);
  const TensorView g = call.Read("grad", grad);
  const TensorView i = call.Read("indices", indices);
  const TensorView s = call.Read("segment_ids", segment_ids);
  const TensorView dim0 = call.Read("dense_output_dim0", dense_output_dim0);
  return call.Run(
      [&](const Context& ctx) { return SparseSegmentGradV2Padded(combine, g, i, s, dim0, max_unique, ctx); },
      [&](SparseSegmentGradV2PaddedOutput& result) {
        Store(result.output, output);
        Store(result.sorted_unique_indices, sorted_unique_indices);
        Store(result.report, report);
      });
}

rg_status rg_indexed_slices_coalesce_padded(const rg_context* context, const rg_indexed_slices* slices,
                                            int64_t max_unique, rg_output* slice_values, rg_output* slice_indices,
                                            rg_output* report, rg_error* error) {
  CCall call("rg_indexed_slices_coalesce_padded", context, error, {slice_values, slice_indices, report});
  const IndexedSlicesView view = capi::ReadSlices(call, slices);
  return call.Run([&](const Context& ctx) { return CoalescePadded(view, max_unique, ctx); },
                  [&](CoalescePaddedOutput& result) {
                    Store(result.values, slice_values);
                    Store(result.indices, slice_indices);
                    Store(result.report, report);
                  });
}

rg_status rg_sparse_fill_empty_rows_padded(const rg_context* context, const rg_tensor* indices, const rg_tensor* values,
                                           const rg_tensor* dense_shape, const rg_tensor* default_value,
                                           int64_t max_full, rg_output* output_indices, rg_output* output_values,
                                           rg_output* empty_row_indicator, rg_output* reverse_index_map,
                                           rg_output* report, rg_error* error) {
  CCall call("rg_sparse_fill_empty_rows_padded", context, error,
             {output_indices, output_values, empty_row_indicator, reverse_index_map, report});
  const TensorView i = call.Read("indices", indices);
  const TensorView v = call.Read("values", values);
  const TensorView shape = call.Read("dense_shape", dense_shape);
  const TensorView filler = call.Read("default_value", default_value);
  return call.Run([&](const Context& ctx) { return SparseFillEmptyRowsPadded(i, v, shape, filler, max_full, ctx); },
                  [&](SparseFillEmptyRowsPaddedOutput& result) {
                    Store(result.output_indices, output_indices);
                    Store(result.output_values, output_values);
                    Store(result.empty_row_indicator, empty_row_indicator);
                    Store(result.reverse_index_map, reverse_index_map);
                    Store(result.report, report);
                  });
}

rg_status rg_ragged_fill_empty_rows_padded(const rg_context* context, const rg_tensor* value_rowids,
                                           const rg_tensor* values, const rg_tensor* nrows,
                                           const rg_tensor* default_value, int64_t max_full,
                                           rg_output* output_value_rowids, rg_output* output_values,
                                           rg_output* empty_row_indicator, rg_output* reverse_index_map,
                                           rg_output* report, rg_error* error) {
  CCall call("rg_ragged_fill_empty_rows_padded", context, error,
             {output_value_rowids, output_values, empty_row_indicator, reverse_index_map, report});
  const TensorView rowids = call.Read("value_rowids", value_rowids);
  const TensorView v = call.Read("values", values);
  const TensorView rows = call.Read("nrows", nrows);
  const TensorView filler = call.Read("default_value", default_value);
  return call.Run([&](const Context& ctx) { return RaggedFillEmptyRowsPadded(rowids, v, rows, filler, max_full, ctx); },
                  [&](RaggedFillEmptyRowsPaddedOutput& result) {
                    Store(result.output_value_rowids, output_value_rowids);
                    Store(result.output_values, output_values);
                    Store(result.empty_row_indicator, empty_row_indicator);
                    Store(result.reverse_index_map, reverse_index_map);
                    Store(result.report, report);
                  });
}

rg_status rg_sparse_slice_padded(const rg_context* context, const rg_tensor* indices, const rg_tensor* values,
                                 const rg_tensor* shape, const rg_tensor* start, const rg_tensor* size,
                                 int64_t max_kept, rg_output* output_indices, rg_output* output_values,
                                 rg_output* output_shape, rg_output* report, rg_error* error) {
  CCall call("rg_sparse_slice_padded", context, error, {output_indices, output_values, output_shape, report});
  const TensorView i = call.Read("indices", indices);
  const TensorView v = call.Read("values", values);
  const TensorView dims = call.Read("shape", shape);
  const TensorView begin = call.Read("start", start);
  const TensorView extent = call.Read("size", size);
  return call.Run([&](const Context& ctx) { return SparseSlicePadded(i, v, dims, begin, extent, max_kept, ctx); },
                  [&](SparseSlicePaddedOutput& result) {
                    Store(result.output_indices, output_indices);
                    Store(result.output_values, output_values);
                    Store(result.output_shape, output_shape);
                    Store(result.report, report);
                  });
}
