#include "embedding_bag.h"

#include <torch/csrc/stable/ops.h>

#include <utility>
#include <vector>

#include "bags.h"

namespace raggrad::torch_door {
namespace {

Ids IdsOf(const Bags& bags) { return {bags.ids, bags.segment_ids}; }

}  // namespace

TorchTensor EmbeddingBagForward(const TorchTensor& weight, const TorchTensor& indices, const TorchTensor& offsets,
                                const MaybeTensor& per_sample_weights, const std::string& mode,
                                bool include_last_offset, std::optional<int64_t> padding_idx, bool /*sparse*/,
                                const MaybeText& accumulation) {
  constexpr std::string_view kOp = "embedding_bag";
  Call call(kOp, weight, accumulation);
  const auto operands = OperandsOf(call, indices, offsets, per_sample_weights, include_last_offset, padding_idx);
  return WithBags(call, operands, [&](const Bags& bags) {
    return Pool(call, PoolingOf(kOp, mode, bags), weight, IdsOf(bags), bags.count);
  });
}

TorchTensor EmbeddingBagDenseGrad(const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& offsets,
                                  const MaybeTensor& per_sample_weights, int64_t table_rows, const std::string& mode,
                                  bool include_last_offset, std::optional<int64_t> padding_idx,
                                  const MaybeText& accumulation) {
  constexpr std::string_view kOp = "embedding_bag_grad";
  Call call(kOp, grad, accumulation);
  const auto operands = OperandsOf(call, indices, offsets, per_sample_weights, include_last_offset, padding_idx);
  return WithBags(call, operands, [&](const Bags& bags) {
    return DenseGrad(call, PoolingOf(kOp, mode, bags), grad, IdsOf(bags), table_rows);
  });
}

TwoTensors EmbeddingBagGradRows(const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& offsets,
                                const MaybeTensor& per_sample_weights, int64_t table_rows, const std::string& mode,
                                bool include_last_offset, std::optional<int64_t> padding_idx,
                                const MaybeText& accumulation) {
  constexpr std::string_view kOp = "embedding_bag_grad_rows";
  Call call(kOp, grad, accumulation);
  const auto operands = OperandsOf(call, indices, offsets, per_sample_weights, include_last_offset, padding_idx);
  return WithBags(call, operands, [&](const Bags& bags) {
    return GradRows(call, PoolingOf(kOp, mode, bags), grad, IdsOf(bags), table_rows);
  });
}

TorchTensor EmbeddingBagWeightsGrad(const TorchTensor& grad, const TorchTensor& weight, const TorchTensor& indices,
                                    const TorchTensor& offsets, const std::string& mode, bool include_last_offset,
                                    std::optional<int64_t> padding_idx) {
  constexpr std::string_view kOp = "embedding_bag_weights_grad";
  Call call(kOp, weight);
  const TensorView rows = call.View(weight);
  const auto operands = OperandsOf(call, indices, offsets, {}, include_last_offset, padding_idx);
  return WithBags(call, operands, [&](const Bags& bags) {
    // With numbers of ids as divisors the gradient does not depend on the weights: any of the right type will do.
    const TorchTensor any = ::torch::stable::new_zeros(weight, {bags.ids.dim(0)});
    const SegmentWeights weights{call.View(any), WeightDivisor::kCount};
    Tensor grads = call.Get(SparseSegmentWeightsGrad({CombinerOf(kOp, "mode", mode), weights}, call.View(grad), rows,
                                                     bags.ids, bags.segment_ids, call.context()));
    const int64_t kept = bags.ids.dim(0), all = indices.numel();
    if (kept == all) return call.Take(std::move(grads));
    if (bags.positions) return call.Take(call.Get(SpreadOverPositions(bags, grads.view(), all, call.context())));
    // Only ids behind the last offset were left out.
    return ::torch::stable::pad(call.Take(std::move(grads)), {0, all - kept});
  });
}

TorchTensor EmbeddingForward(const TorchTensor& weight, const TorchTensor& indices,
                             std::optional<int64_t> /*padding_idx*/, bool /*sparse*/, const MaybeText& accumulation) {
  Call call("embedding", weight, accumulation);
  const int64_t count = indices.numel();
  const PlacesLike bags(call, indices, count, "indices");
  TensorView ids = call.View(indices);
  const Shape shape = ids.shape;
  ids.shape = Shape{count};
  // A bag of one row is a copy of it.
  const TorchTensor rows = Pool(call, SegmentCombiner::kSum, weight, {ids, bags.view()}, count);
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  const auto row = weight.sizes();
  dims.insert(dims.end(), row.begin() + 1, row.end());
  return ::torch::stable::view(rows, dims);
}

}  // namespace raggrad::torch_door
