// Gradients with only some rows of a table, and optimizers that apply them.
#include <algorithm>
#include <cstring>
#include <string>

#include "raggrad/capi/c_call.h"
#include "raggrad/capi/c_segment.h"
#include "raggrad/core/error_text.h"
#include "raggrad/ops/sparse_segment/indexed_slices.h"

using namespace raggrad;  // NOLINT: everything here belongs to C
using raggrad::capi::CCall;
using raggrad::capi::ReadSlices;
using raggrad::capi::ReadUpdate;
using raggrad::capi::Store;
using raggrad::capi::StoreSlices;

void rg_row_update_init(rg_row_update* update, size_t struct_size, int32_t rule, double learning_rate) {
  if (update == nullptr || struct_size < sizeof(size_t)) return;
  const Adam adam{learning_rate};
  double epsilon = adam.epsilon;
  if (rule == RG_ADAGRAD) epsilon = Adagrad{learning_rate}.epsilon;
  if (rule == RG_ROWWISE_ADAGRAD) epsilon = RowwiseAdagrad{learning_rate}.epsilon;
  const rg_row_update defaults{struct_size, rule,      learning_rate, epsilon, adam.beta1,
                               adam.beta2,  adam.step, nullptr,       nullptr, nullptr};
  std::memset(update, 0, struct_size);
  std::memcpy(update, &defaults, std::min(struct_size, sizeof(defaults)));
}

rg_status rg_sparse_segment_grad_slices(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                        const rg_tensor* indices, const rg_tensor* segment_ids, int64_t table_rows,
                                        rg_output* slice_values, rg_output* slice_indices, rg_error* error) {
  CCall call("rg_sparse_segment_grad_slices", context, error, {slice_values, slice_indices});
  const SegmentCombiner combine = call.ReadCombiner(combiner);
  const TensorView g = call.Read("grad", grad);
  const TensorView i = call.Read("indices", indices);
  const TensorView s = call.Read("segment_ids", segment_ids);
  return call.Run([&](const Context& ctx) { return SparseSegmentGradSlices(combine, g, i, s, table_rows, ctx); },
                  [&](IndexedSlices& result) { StoreSlices(result, slice_values, slice_indices); });
}

rg_status rg_indexed_slices_to_dense(const rg_context* context, const rg_indexed_slices* slices, rg_output* dense,
                                     rg_error* error) {
  CCall call("rg_indexed_slices_to_dense", context, error, {dense});
  const IndexedSlicesView view = ReadSlices(call, slices);
  return call.Run([&](const Context& ctx) { return ToDense(view, ctx); },
                  [&](Tensor& result) { Store(result, dense); });
}

rg_status rg_indexed_slices_coalesce(const rg_context* context, const rg_indexed_slices* slices,
                                     rg_output* slice_values, rg_output* slice_indices, rg_error* error) {
  CCall call("rg_indexed_slices_coalesce", context, error, {slice_values, slice_indices});
  const IndexedSlicesView view = ReadSlices(call, slices);
  return call.Run([&](const Context& ctx) { return Coalesce(view, ctx); },
                  [&](IndexedSlices& result) { StoreSlices(result, slice_values, slice_indices); });
}

rg_status rg_indexed_slices_apply(const rg_context* context, const rg_indexed_slices* slices,
                                  const rg_row_update* update, const rg_mutable_tensor* table, rg_error* error) {
  CCall call("rg_indexed_slices_apply", context, error, {});
  const IndexedSlicesView view = ReadSlices(call, slices);
  const RowUpdate rule = ReadUpdate(call, update);
  const MutableTensorView rows = call.Read("table", table);
  return call.Run([&](const Context& ctx) { return ApplyRows(view, rule, rows, ctx); });
}

rg_status rg_sparse_segment_grad_apply(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                       const rg_tensor* indices, const rg_tensor* segment_ids,
                                       const rg_row_update* update, const rg_mutable_tensor* table, rg_error* error) {
  CCall call("rg_sparse_segment_grad_apply", context, error, {});
  const SegmentCombiner combine = call.ReadCombiner(combiner);
  const TensorView g = call.Read("grad", grad);
  const TensorView i = call.Read("indices", indices);
  const TensorView s = call.Read("segment_ids", segment_ids);
  const RowUpdate rule = ReadUpdate(call, update);
  const MutableTensorView rows = call.Read("table", table);
  return call.Run([&](const Context& ctx) { return SparseSegmentGradApply(combine, g, i, s, rule, rows, ctx); });
}

rg_status rg_sparse_segment_grad_apply_with_plan(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                                 const rg_segment_plan* plan, const rg_row_update* update,
                                                 const rg_mutable_tensor* table, rg_error* error) {
  CCall call("rg_sparse_segment_grad_apply_with_plan", context, error, {});
  const SegmentCombiner combine = call.ReadCombiner(combiner);
  const TensorView g = call.Read("grad", grad);
  call.Given("plan", plan);
  const RowUpdate rule = ReadUpdate(call, update);
  const MutableTensorView rows = call.Read("table", table);
  return call.Run([&](const Context& ctx) { return SparseSegmentGradApply(combine, g, *plan->plan, rule, rows, ctx); });
}
