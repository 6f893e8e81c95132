#include "raggrad/capi/raggrad_c.h"

#include <cstring>

#include "raggrad/capi/c_call.h"
#include "raggrad/raggrad.h"

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

void rg_context_init(rg_context* context, size_t struct_size) {
  if (context == nullptr || struct_size < sizeof(size_t)) return;
  std::memset(context, 0, struct_size);
  context->struct_size = struct_size;
}

void rg_output_free(const rg_context* context, rg_output* output) {
  if (output == nullptr) return;
  rg_context given{};
  const Status status = capi::ReadContext("rg_output_free", context, given);
  if (output->data != nullptr && status.ok()) {
    given.deallocate ? given.deallocate(given.user, output->data, output->bytes)
                     : DefaultAllocator().Deallocate(output->data, output->bytes);
  }
  *output = {};
}

const char* rg_version(void) { return Version().data(); }
int32_t rg_abi_version(void) { return RG_ABI_VERSION; }
const char* rg_code_name(rg_status code) { return CodeName(static_cast<Code>(code)).data(); }
const char* rg_dtype_name(int32_t dtype) { return DTypeName(static_cast<DType>(dtype)).data(); }
int32_t rg_dtype_from_name(const char* name) { return name == nullptr ? 0 : static_cast<int32_t>(DTypeFromName(name)); }
size_t rg_dtype_size(int32_t dtype) { return DTypeSize(static_cast<DType>(dtype)); }

rg_status rg_sparse_segment_grad_v2(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                    const rg_tensor* indices, const rg_tensor* segment_ids,
                                    const rg_tensor* dense_output_dim0, rg_output* output,
                                    rg_output* sorted_unique_indices, rg_error* error) {
  CCall call("rg_sparse_segment_grad_v2", context, error, {output, sorted_unique_indices});
  const SegmentCombiner combine = call.ReadCombiner(combiner);
  const TensorView g = call.Read("grad", grad);
  const TensorView i = call.Read("indices", indices);
  const TensorView s = call.Read("segment_ids", segment_ids);
  const TensorView dim0 = call.Read("dense_output_dim0", dense_output_dim0);
  return call.Run([&](const Context& ctx) { return SparseSegmentGradV2(combine, g, i, s, dim0, ctx); },
                  [&](SparseSegmentGradV2Output& result) {
                    Store(result.output, output);
                    Store(result.sorted_unique_indices, sorted_unique_indices);
                  });
}

rg_status rg_sparse_segment_grad(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                 const rg_tensor* indices, const rg_tensor* segment_ids, const rg_tensor* output_dim0,
                                 rg_output* output, rg_error* error) {
  CCall call("rg_sparse_segment_grad", context, error, {output});
  const SegmentCombiner combine = call.ReadCombiner(combiner);
  const TensorView g = call.Read("grad", grad);
  const TensorView i = call.Read("indices", indices);
  const TensorView s = call.Read("segment_ids", segment_ids);
  const TensorView dim0 = call.Read("output_dim0", output_dim0);
  return call.Run([&](const Context& ctx) { return SparseSegmentGrad(combine, g, i, s, dim0, ctx); },
                  [&](Tensor& result) { Store(result, output); });
}

rg_status rg_sparse_segment(const rg_context* context, int32_t combiner, const rg_tensor* data,
                            const rg_tensor* indices, const rg_tensor* segment_ids, rg_output* output,
                            rg_error* error) {
  CCall call("rg_sparse_segment", context, error, {output});
  const SegmentCombiner combine = call.ReadCombiner(combiner);
  const TensorView d = call.Read("data", data);
  const TensorView i = call.Read("indices", indices);
  const TensorView s = call.Read("segment_ids", segment_ids);
  return call.Run([&](const Context& ctx) { return SparseSegment(combine, d, i, s, ctx); },
                  [&](Tensor& result) { Store(result, output); });
}

rg_status rg_sparse_segment_with_num_segments(const rg_context* context, int32_t combiner, const rg_tensor* data,
                                              const rg_tensor* indices, const rg_tensor* segment_ids,
                                              const rg_tensor* num_segments, rg_output* output, rg_error* error) {
  CCall call("rg_sparse_segment_with_num_segments", context, error, {output});
  const SegmentCombiner combine = call.ReadCombiner(combiner);
  const TensorView d = call.Read("data", data);
  const TensorView i = call.Read("indices", indices);
  const TensorView s = call.Read("segment_ids", segment_ids);
  const TensorView count = call.Read("num_segments", num_segments);
  return call.Run([&](const Context& ctx) { return SparseSegmentWithNumSegments(combine, d, i, s, count, ctx); },
                  [&](Tensor& result) { Store(result, output); });
}

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
