#include "embedding_bag.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <vector>

#include "bags.h"
#include "raggrad/core/error_text.h"

namespace raggrad::torch_door {
namespace {

Bags BagsOf(Call& call, const TorchTensor& indices, const TorchTensor& offsets, const MaybeTensor& per_sample_weights,
            bool include_last_offset, std::optional<int64_t> padding_idx) {
  BagOperands operands{.ids = call.View(indices),
                       .offsets = call.View(offsets),
                       .weights = {},
                       .include_last_offset = include_last_offset,
                       .padding_id = padding_idx};
  if (per_sample_weights) operands.weights = call.View(*per_sample_weights);
  return call.Get(CutIntoBags(operands, call.context()));
}

Ids IdsOf(const Bags& bags) { return {bags.ids, bags.segment_ids}; }

SegmentPooling PoolingOf(std::string_view op, const std::string& mode, const Bags& bags) {
  const SegmentCombiner combiner = CombinerOf(op, "mode", mode);
  if (!bags.weights) return combiner;
  return {combiner, {*bags.weights, WeightDivisor::kCount}};
}

// Puts the gradients of kept ids to the places that these ids have among all.
template <class Id>
void Spread(const TensorView& ids, std::optional<int64_t> padding_id, const char* kept, int64_t bytes, char* out) {
  const Id* const id = ids.As<Id>();
  for (int64_t i = 0; i < ids.dim(0); ++i, out += bytes) {
    if (padding_id && static_cast<int64_t>(id[i]) == *padding_id) continue;
    std::copy_n(kept, bytes, out);
    kept += bytes;
  }
}

}  // namespace

TorchTensor EmbeddingBagForward(const TorchTensor& weight, const TorchTensor& indices, const TorchTensor& offsets,
                                const MaybeTensor& per_sample_weights, const std::string& mode,
                                bool include_last_offset, std::optional<int64_t> padding_idx, bool /*sparse*/,
                                const MaybeText& accumulation) {
  constexpr std::string_view kOp = "embedding_bag";
  Call call(kOp, weight, accumulation);
  const Bags bags = BagsOf(call, indices, offsets, per_sample_weights, include_last_offset, padding_idx);
  return Pool(call, PoolingOf(kOp, mode, bags), weight, IdsOf(bags), bags.count);
}

TorchTensor EmbeddingBagDenseGrad(const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& offsets,
                                  const MaybeTensor& per_sample_weights, int64_t table_rows, const std::string& mode,
                                  bool include_last_offset, std::optional<int64_t> padding_idx,
                                  const MaybeText& accumulation) {
  constexpr std::string_view kOp = "embedding_bag_grad";
  Call call(kOp, grad, accumulation);
  const Bags bags = BagsOf(call, indices, offsets, per_sample_weights, include_last_offset, padding_idx);
  return DenseGrad(call, PoolingOf(kOp, mode, bags), grad, IdsOf(bags), table_rows);
}

TwoTensors EmbeddingBagGradRows(const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& offsets,
                                const MaybeTensor& per_sample_weights, int64_t table_rows, const std::string& mode,
                                bool include_last_offset, std::optional<int64_t> padding_idx,
                                const MaybeText& accumulation) {
  constexpr std::string_view kOp = "embedding_bag_grad_rows";
  Call call(kOp, grad, accumulation);
  const Bags bags = BagsOf(call, indices, offsets, per_sample_weights, include_last_offset, padding_idx);
  return GradRows(call, PoolingOf(kOp, mode, bags), grad, IdsOf(bags), table_rows);
}

TorchTensor EmbeddingBagWeightsGrad(const TorchTensor& grad, const TorchTensor& weight, const TorchTensor& indices,
                                    const TorchTensor& offsets, const std::string& mode, bool include_last_offset,
                                    std::optional<int64_t> padding_idx) {
  constexpr std::string_view kOp = "embedding_bag_weights_grad";
  Call call(kOp, weight);
  const TensorView rows = call.View(weight);
  const Bags bags = BagsOf(call, indices, offsets, {}, include_last_offset, padding_idx);
  // With numbers of ids as divisors the gradient does not depend on the weights: any of the right type will do.
  const int64_t kept = bags.ids.dim(0);
  const auto bytes = static_cast<int64_t>(DTypeSize(rows.dtype));
  Scratch<char> any = call.Get(Scratch<char>::Make(call.context(), kept * bytes));
  std::fill_n(any.data(), kept * bytes, '\0');
  const SegmentWeights weights{{any.data(), rows.dtype, Shape{kept}, {}}, WeightDivisor::kCount};
  TorchTensor grads = call.Take(call.Get(SparseSegmentWeightsGrad(
      {CombinerOf(kOp, "mode", mode), weights}, call.View(grad), rows, bags.ids, bags.segment_ids, call.context())));
  if (kept == indices.numel()) return grads;
  TorchTensor all = ::torch::stable::new_zeros(grads, {indices.numel()});
  TensorView ids = call.View(indices);
  ids.shape = Shape{bags.ids_with_padding};
  const auto spread = ids.dtype == DType::kInt32 ? &Spread<int32_t> : &Spread<int64_t>;
  spread(ids, padding_idx, static_cast<const char*>(grads.const_data_ptr()), bytes,
         static_cast<char*>(all.mutable_data_ptr()));
  return all;
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
