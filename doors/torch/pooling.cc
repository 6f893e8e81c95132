#include "pooling.h"

#include <climits>

#include "raggrad/core/error_text.h"
#include "raggrad/ops/bags/bags.h"

namespace raggrad::torch_door {

TorchTensor Pool(Call& call, const SegmentPooling& pooling, const TorchTensor& data, const Ids& ids,
                 int64_t num_segments) {
  return call.Take(call.Get(SparseSegmentWithNumSegments(pooling, call.View(data), ids.indices, ids.segment_ids,
                                                         TensorView::Scalar(num_segments), call.context())));
}

TorchTensor DenseGrad(Call& call, const SegmentPooling& pooling, const TorchTensor& grad, const Ids& ids,
                      int64_t table_rows) {
  const TensorView rows = call.View(grad);
  if (table_rows <= INT32_MAX) {
    const auto dim0 = static_cast<int32_t>(table_rows);
    return call.Take(call.Get(
        SparseSegmentGrad(pooling, rows, ids.indices, ids.segment_ids, TensorView::Scalar(dim0), call.context())));
  }
  const SegmentPlan plan = call.Get(SegmentPlan::Make(
      ids.indices, ids.segment_ids, {.table_rows = table_rows, .num_segments = rows.dim(0)}, call.context()));
  return call.Take(call.Get(SparseSegmentGrad(pooling, rows, plan, call.context())));
}

TwoTensors GradRows(Call& call, const SegmentPooling& pooling, const TorchTensor& grad, const Ids& ids,
                    int64_t table_rows) {
  IndexedSlices slices = call.Get(
      SparseSegmentGradSlices(pooling, call.View(grad), ids.indices, ids.segment_ids, table_rows, call.context()));
  return {call.Take(std::move(slices.values)), call.Take(std::move(slices.indices))};
}

PlacesLike::PlacesLike(Call& call, const TorchTensor& like, int64_t count, std::string_view argument) {
  if (count > INT32_MAX) {
    call.Check(MakeError(Code::kInvalidArgument, "[", argument, ": expected less than 2^31 ids, got ", count, "]"));
  }
  const Device device = call.View(like).device;
  memory_ = call.Get(Places(device, count, call.context()));
  view_ = {memory_.data(), DType::kInt32, Shape{count}, device};
}

}  // namespace raggrad::torch_door
