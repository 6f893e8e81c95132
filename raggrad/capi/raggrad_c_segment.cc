#include "raggrad/capi/raggrad_c_segment.h"

#include "raggrad/capi/c_call.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

using namespace raggrad;  // NOLINT: everything here belongs to C
using raggrad::capi::CCall;
using raggrad::capi::Store;

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
