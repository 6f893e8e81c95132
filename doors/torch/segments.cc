#include "segments.h"

#include "raggrad/core/error_text.h"
#include "raggrad/ops/sparse_segment/segment_order.h"

namespace raggrad::torch_door {

TorchTensor SparseSegmentForward(const TorchTensor& data, const TorchTensor& indices, const TorchTensor& segment_ids,
                                 int64_t num_segments, const std::string& combiner, const MaybeText& accumulation) {
  constexpr std::string_view kOp = "sparse_segment";
  Call call(kOp, data, accumulation);
  return Pool(call, CombinerOf(kOp, "combiner", combiner), data, {call.View(indices), call.View(segment_ids)},
              num_segments);
}

TorchTensor SparseSegmentDenseGrad(const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& segment_ids,
                                   int64_t table_rows, const std::string& combiner, const MaybeText& accumulation) {
  constexpr std::string_view kOp = "sparse_segment_grad";
  Call call(kOp, grad, accumulation);
  return DenseGrad(call, CombinerOf(kOp, "combiner", combiner), grad, {call.View(indices), call.View(segment_ids)},
                   table_rows);
}

TwoTensors SparseSegmentGradRows(const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& segment_ids,
                                 int64_t table_rows, const std::string& combiner, const MaybeText& accumulation) {
  constexpr std::string_view kOp = "sparse_segment_grad_rows";
  Call call(kOp, grad, accumulation);
  return GradRows(call, CombinerOf(kOp, "combiner", combiner), grad, {call.View(indices), call.View(segment_ids)},
                  table_rows);
}

TorchTensor SegmentForward(const TorchTensor& data, const TorchTensor& segment_ids, int64_t num_segments,
                           const std::string& combiner, const MaybeText& accumulation) {
  constexpr std::string_view kOp = "segment";
  Call call(kOp, data, accumulation);
  return call.Take(call.Get(PoolSegments(CombinerOf(kOp, "combiner", combiner), call.View(data),
                                         {call.View(segment_ids), num_segments}, call.context())));
}

TorchTensor SegmentGrad(const TorchTensor& grad, const TorchTensor& segment_ids, const std::string& combiner,
                        const MaybeText& accumulation) {
  constexpr std::string_view kOp = "segment_grad";
  Call call(kOp, grad, accumulation);
  const TensorView ids = call.View(segment_ids);
  const int64_t rows = segment_ids.numel();
  const PlacesLike positions(call, segment_ids, rows, "segment_ids");
  return DenseGrad(call, CombinerOf(kOp, "combiner", combiner), grad, {positions.view(), ids}, rows);
}

}  // namespace raggrad::torch_door
