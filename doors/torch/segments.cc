#include "segments.h"

#include <torch/csrc/stable/ops.h>

#include <climits>
#include <numeric>
#include <vector>

#include "bags.h"
#include "raggrad/core/scratch.h"
#include "segment_order.h"

namespace raggrad::torch_door {
namespace {

// Ids and the segments they belong to, wherever they came from.
struct Ids {
  TensorView indices;
  TensorView segment_ids;
};

TorchTensor Pool(Call& call, SegmentCombiner combiner, const TorchTensor& data, const Ids& ids, int64_t num_segments) {
  return call.Take(call.Get(SparseSegmentWithNumSegments(combiner, call.View(data), ids.indices, ids.segment_ids,
                                                         TensorView::Scalar(num_segments), call.context())));
}

TorchTensor DenseGrad(Call& call, SegmentCombiner combiner, const TorchTensor& grad, const Ids& ids,
                      int64_t table_rows) {
  const TensorView rows = call.View(grad);
  if (table_rows <= INT32_MAX) {
    const auto dim0 = static_cast<int32_t>(table_rows);
    return call.Take(call.Get(
        SparseSegmentGrad(combiner, rows, ids.indices, ids.segment_ids, TensorView::Scalar(dim0), call.context())));
  }
  const SegmentPlan plan = call.Get(SegmentPlan::Make(
      ids.indices, ids.segment_ids, {.table_rows = table_rows, .num_segments = rows.dim(0)}, call.context()));
  return call.Take(call.Get(SparseSegmentGrad(combiner, rows, plan, call.context())));
}

TwoTensors GradRows(Call& call, SegmentCombiner combiner, const TorchTensor& grad, const Ids& ids, int64_t table_rows) {
  IndexedSlices slices = call.Get(
      SparseSegmentGradSlices(combiner, call.View(grad), ids.indices, ids.segment_ids, table_rows, call.context()));
  return {call.Take(std::move(slices.values)), call.Take(std::move(slices.indices))};
}

// 0, 1, 2, ...
Scratch<int32_t> Positions(Call& call, int64_t count, std::string_view argument) {
  if (count > INT32_MAX) {
    call.Check(MakeError(Code::kInvalidArgument, "[", argument, ": expected less than 2^31 ids, got ", count, "]"));
  }
  Scratch<int32_t> positions = call.Get(Scratch<int32_t>::Make(call.context(), count));
  std::iota(positions.data(), positions.data() + count, 0);
  return positions;
}

Bags BagsOf(Call& call, const TorchTensor& indices, const TorchTensor& offsets, bool include_last_offset,
            std::optional<int64_t> padding_idx) {
  return call.Get(
      CutIntoBags(call.View(indices), call.View(offsets), include_last_offset, padding_idx, call.context()));
}

}  // namespace

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
  if (data.dim() == 0 || data.size(0) != segment_ids.numel()) {
    call.Check(MakeError(Code::kInvalidArgument, "[segment_ids: expected one for every row of data, got ",
                         segment_ids.numel(), " for shape ", call.View(data).shape, "]"));
  }
  const SegmentOrder order = call.Get(OrderBySegment(call.View(segment_ids), num_segments, call.context()));
  return Pool(call, CombinerOf(kOp, "combiner", combiner), data, {order.positions, order.segment_ids}, num_segments);
}

TorchTensor SegmentGrad(const TorchTensor& grad, const TorchTensor& segment_ids, const std::string& combiner,
                        const MaybeText& accumulation) {
  constexpr std::string_view kOp = "segment_grad";
  Call call(kOp, grad, accumulation);
  const TensorView ids = call.View(segment_ids);
  const int64_t rows = segment_ids.numel();
  const Scratch<int32_t> positions = Positions(call, rows, "segment_ids");
  return DenseGrad(call, CombinerOf(kOp, "combiner", combiner), grad,
                   {TensorView::Of(positions.data(), Shape{rows}), ids}, rows);
}

TorchTensor EmbeddingBagForward(const TorchTensor& weight, const TorchTensor& indices, const TorchTensor& offsets,
                                const std::string& mode, bool include_last_offset, std::optional<int64_t> padding_idx,
                                bool /*sparse*/, const MaybeText& accumulation) {
  constexpr std::string_view kOp = "embedding_bag";
  Call call(kOp, weight, accumulation);
  const Bags bags = BagsOf(call, indices, offsets, include_last_offset, padding_idx);
  return Pool(call, CombinerOf(kOp, "mode", mode), weight, {bags.ids, bags.segment_ids}, bags.count);
}

TorchTensor EmbeddingBagDenseGrad(const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& offsets,
                                  int64_t table_rows, const std::string& mode, bool include_last_offset,
                                  std::optional<int64_t> padding_idx, const MaybeText& accumulation) {
  constexpr std::string_view kOp = "embedding_bag_grad";
  Call call(kOp, grad, accumulation);
  const Bags bags = BagsOf(call, indices, offsets, include_last_offset, padding_idx);
  return DenseGrad(call, CombinerOf(kOp, "mode", mode), grad, {bags.ids, bags.segment_ids}, table_rows);
}

TwoTensors EmbeddingBagGradRows(const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& offsets,
                                int64_t table_rows, const std::string& mode, bool include_last_offset,
                                std::optional<int64_t> padding_idx, const MaybeText& accumulation) {
  constexpr std::string_view kOp = "embedding_bag_grad_rows";
  Call call(kOp, grad, accumulation);
  const Bags bags = BagsOf(call, indices, offsets, include_last_offset, padding_idx);
  return GradRows(call, CombinerOf(kOp, "mode", mode), grad, {bags.ids, bags.segment_ids}, table_rows);
}

TorchTensor EmbeddingForward(const TorchTensor& weight, const TorchTensor& indices,
                             std::optional<int64_t> /*padding_idx*/, bool /*sparse*/, const MaybeText& accumulation) {
  Call call("embedding", weight, accumulation);
  const int64_t count = indices.numel();
  const Scratch<int32_t> bags = Positions(call, count, "indices");
  TensorView ids = call.View(indices);
  const Shape shape = ids.shape;
  ids.shape = Shape{count};
  // A bag of one row is a copy of it.
  const TorchTensor rows =
      Pool(call, SegmentCombiner::kSum, weight, {ids, TensorView::Of(bags.data(), Shape{count})}, count);
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  const auto row = weight.sizes();
  dims.insert(dims.end(), row.begin() + 1, row.end());
  return ::torch::stable::view(rows, dims);
}

}  // namespace raggrad::torch_door
