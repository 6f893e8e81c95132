#include "updates.h"

#include "bags.h"
#include "rule.h"

namespace raggrad::torch_door {
namespace {

// Rows may be the indices of a sparse tensor with one sparse dimension, [1, n].
TensorView RowsOf(Call& call, const TorchTensor& rows) {
  TensorView view = call.View(rows);
  if (view.rank() == 2 && view.dim(0) == 1) view.shape = Shape{view.dim(1)};
  return view;
}

}  // namespace

void ApplyRowsInPlace(const TorchTensor& table, const MaybeTensor& state1, const MaybeTensor& state2,
                      const TorchTensor& values, const TorchTensor& rows, const std::string& optimizer,
                      double learning_rate, double epsilon, double beta1, double beta2, int64_t step,
                      const MaybeText& accumulation, bool coalesced, const MaybeTensor& rate) {
  Call call("apply_rows_", table, accumulation);
  const MutableTensorView weights = TableOf(call, table);
  const RowUpdate update =
      UpdateOf(call, {optimizer, state1, state2, learning_rate, epsilon, beta1, beta2, step, rate});
  const IndexedSlicesView slices = {call.View(values), RowsOf(call, rows), weights.shape[0], coalesced};
  call.Check(ApplyRows(slices, update, weights, call.context()));
}

void SparseSegmentGradApplyInPlace(const TorchTensor& table, const MaybeTensor& state1, const MaybeTensor& state2,
                                   const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& segment_ids,
                                   const std::string& combiner, const std::string& optimizer, double learning_rate,
                                   double epsilon, double beta1, double beta2, int64_t step,
                                   const MaybeText& accumulation, const MaybeTensor& rate) {
  constexpr std::string_view kOp = "sparse_segment_grad_apply_";
  Call call(kOp, table, accumulation);
  const MutableTensorView weights = TableOf(call, table);
  const RowUpdate update =
      UpdateOf(call, {optimizer, state1, state2, learning_rate, epsilon, beta1, beta2, step, rate});
  call.Check(SparseSegmentGradApply(CombinerOf(kOp, "combiner", combiner), call.View(grad), call.View(indices),
                                    call.View(segment_ids), update, weights, call.context()));
}

void EmbeddingBagGradApplyInPlace(const TorchTensor& table, const MaybeTensor& state1, const MaybeTensor& state2,
                                  const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& offsets,
                                  const MaybeTensor& per_sample_weights, const std::string& combiner,
                                  bool include_last_offset, std::optional<int64_t> padding_idx,
                                  const std::string& optimizer, double learning_rate, double epsilon, double beta1,
                                  double beta2, int64_t step, const MaybeText& accumulation, const MaybeTensor& rate) {
  constexpr std::string_view kOp = "embedding_bag_grad_apply_";
  Call call(kOp, table, accumulation);
  const MutableTensorView weights = TableOf(call, table);
  const RowUpdate update =
      UpdateOf(call, {optimizer, state1, state2, learning_rate, epsilon, beta1, beta2, step, rate});
  const auto operands = OperandsOf(call, indices, offsets, per_sample_weights, include_last_offset, padding_idx);
  WithBags(call, operands, [&](const Bags& bags) {
    call.Check(SparseSegmentGradApply(PoolingOf(kOp, combiner, bags), call.View(grad), bags.ids, bags.segment_ids,
                                      update, weights, call.context()));
  });
}

}  // namespace raggrad::torch_door
