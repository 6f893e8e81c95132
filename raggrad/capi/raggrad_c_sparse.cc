#include "raggrad/capi/raggrad_c_sparse.h"

#include "raggrad/capi/c_call.h"
#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"
#include "raggrad/ops/sparse_slice/sparse_slice.h"

using namespace raggrad;  // NOLINT: everything here belongs to C
using raggrad::capi::CCall;
using raggrad::capi::Store;

namespace {

using FillEmptyRowsGradFunction = Result<FillEmptyRowsGradOutput> (&)(const TensorView&, const TensorView&,
                                                                      const Context&) noexcept;

rg_status FillEmptyRowsGrad(std::string_view function, FillEmptyRowsGradFunction compute, const rg_context* context,
                            const rg_tensor* reverse_index_map, const rg_tensor* grad_values, rg_output* d_values,
                            rg_output* d_default_value, rg_error* error) noexcept {
  CCall call(function, context, error, {d_values, d_default_value});
  const TensorView map = call.Read("reverse_index_map", reverse_index_map);
  const TensorView grad = call.Read("grad_values", grad_values);
  return call.Run([&](const Context& ctx) { return compute(map, grad, ctx); },
                  [&](FillEmptyRowsGradOutput& result) {
                    Store(result.d_values, d_values);
                    Store(result.d_default_value, d_default_value);
                  });
}

}  // namespace

rg_status rg_sparse_fill_empty_rows(const rg_context* context, const rg_tensor* indices, const rg_tensor* values,
                                    const rg_tensor* dense_shape, const rg_tensor* default_value,
                                    rg_output* output_indices, rg_output* output_values, rg_output* empty_row_indicator,
                                    rg_output* reverse_index_map, rg_error* error) {
  CCall call("rg_sparse_fill_empty_rows", context, error,
             {output_indices, output_values, empty_row_indicator, reverse_index_map});
  const TensorView i = call.Read("indices", indices);
  const TensorView v = call.Read("values", values);
  const TensorView shape = call.Read("dense_shape", dense_shape);
  const TensorView filler = call.Read("default_value", default_value);
  return call.Run([&](const Context& ctx) { return SparseFillEmptyRows(i, v, shape, filler, ctx); },
                  [&](SparseFillEmptyRowsOutput& result) {
                    Store(result.output_indices, output_indices);
                    Store(result.output_values, output_values);
                    Store(result.empty_row_indicator, empty_row_indicator);
                    Store(result.reverse_index_map, reverse_index_map);
                  });
}

rg_status rg_ragged_fill_empty_rows(const rg_context* context, const rg_tensor* value_rowids, const rg_tensor* values,
                                    const rg_tensor* nrows, const rg_tensor* default_value,
                                    rg_output* output_value_rowids, rg_output* output_values,
                                    rg_output* empty_row_indicator, rg_output* reverse_index_map, rg_error* error) {
  CCall call("rg_ragged_fill_empty_rows", context, error,
             {output_value_rowids, output_values, empty_row_indicator, reverse_index_map});
  const TensorView rowids = call.Read("value_rowids", value_rowids);
  const TensorView v = call.Read("values", values);
  const TensorView rows = call.Read("nrows", nrows);
  const TensorView filler = call.Read("default_value", default_value);
  return call.Run([&](const Context& ctx) { return RaggedFillEmptyRows(rowids, v, rows, filler, ctx); },
                  [&](RaggedFillEmptyRowsOutput& result) {
                    Store(result.output_value_rowids, output_value_rowids);
                    Store(result.output_values, output_values);
                    Store(result.empty_row_indicator, empty_row_indicator);
                    Store(result.reverse_index_map, reverse_index_map);
                  });
}

rg_status rg_sparse_fill_empty_rows_grad(const rg_context* context, const rg_tensor* reverse_index_map,
                                         const rg_tensor* grad_values, rg_output* d_values, rg_output* d_default_value,
                                         rg_error* error) {
  return FillEmptyRowsGrad("rg_sparse_fill_empty_rows_grad", SparseFillEmptyRowsGrad, context, reverse_index_map,
                           grad_values, d_values, d_default_value, error);
}

rg_status rg_ragged_fill_empty_rows_grad(const rg_context* context, const rg_tensor* reverse_index_map,
                                         const rg_tensor* grad_values, rg_output* d_values, rg_output* d_default_value,
                                         rg_error* error) {
  return FillEmptyRowsGrad("rg_ragged_fill_empty_rows_grad", RaggedFillEmptyRowsGrad, context, reverse_index_map,
                           grad_values, d_values, d_default_value, error);
}

rg_status rg_sparse_slice(const rg_context* context, const rg_tensor* indices, const rg_tensor* values,
                          const rg_tensor* shape, const rg_tensor* start, const rg_tensor* size,
                          rg_output* output_indices, rg_output* output_values, rg_output* output_shape,
                          rg_error* error) {
  CCall call("rg_sparse_slice", context, error, {output_indices, output_values, output_shape});
  const TensorView i = call.Read("indices", indices);
  const TensorView v = call.Read("values", values);
  const TensorView dims = call.Read("shape", shape);
  const TensorView begin = call.Read("start", start);
  const TensorView extent = call.Read("size", size);
  return call.Run([&](const Context& ctx) { return SparseSlice(i, v, dims, begin, extent, ctx); },
                  [&](SparseSliceOutput& result) {
                    Store(result.output_indices, output_indices);
                    Store(result.output_values, output_values);
                    Store(result.output_shape, output_shape);
                  });
}

rg_status rg_sparse_slice_grad(const rg_context* context, const rg_tensor* backprop_val_grad,
                               const rg_tensor* input_indices, const rg_tensor* input_start,
                               const rg_tensor* output_indices, rg_output* val_grad, rg_error* error) {
  CCall call("rg_sparse_slice_grad", context, error, {val_grad});
  const TensorView grad = call.Read("backprop_val_grad", backprop_val_grad);
  const TensorView before = call.Read("input_indices", input_indices);
  const TensorView start = call.Read("input_start", input_start);
  const TensorView after = call.Read("output_indices", output_indices);
  return call.Run([&](const Context& ctx) { return SparseSliceGrad(grad, before, start, after, ctx); },
                  [&](Tensor& result) { Store(result, val_grad); });
}
