#include "sparse.h"

#include <span>

namespace raggrad::torch_door {
namespace {

TensorView Numbers(const std::vector<int64_t>& numbers) {
  return TensorView::Vector(std::span<const int64_t>(numbers));
}

}  // namespace

FourTensors FillEmptyRows(const TorchTensor& values, const TorchTensor& default_value, const TorchTensor& indices,
                          const std::vector<int64_t>& shape) {
  Call call("fill_empty_rows", values);
  SparseFillEmptyRowsOutput filled = call.Get(SparseFillEmptyRows(call.View(indices), call.View(values), Numbers(shape),
                                                                  call.View(default_value), call.context()));
  return {call.Take(std::move(filled.output_values)), call.Take(std::move(filled.output_indices)),
          call.Take(std::move(filled.empty_row_indicator)), call.Take(std::move(filled.reverse_index_map))};
}

TwoTensors FillEmptyRowsGrad(const TorchTensor& grad, const TorchTensor& places, const MaybeText& accumulation) {
  Call call("fill_empty_rows_grad", grad, accumulation);
  FillEmptyRowsGradOutput grads = call.Get(SparseFillEmptyRowsGrad(call.View(places), call.View(grad), call.context()));
  return {call.Take(std::move(grads.d_values)), call.Take(std::move(grads.d_default_value))};
}

TwoTensors SparseSliceForward(const TorchTensor& values, const TorchTensor& indices, const std::vector<int64_t>& shape,
                              const std::vector<int64_t>& start, const std::vector<int64_t>& size) {
  Call call("sparse_slice", values);
  SparseSliceOutput kept = call.Get(SparseSlice(call.View(indices), call.View(values), Numbers(shape), Numbers(start),
                                                Numbers(size), call.context()));
  return {call.Take(std::move(kept.output_values)), call.Take(std::move(kept.output_indices))};
}

TorchTensor SparseSliceBackward(const TorchTensor& grad, const TorchTensor& indices, const TorchTensor& output_indices,
                                const std::vector<int64_t>& /*shape*/, const std::vector<int64_t>& start,
                                const std::vector<int64_t>& /*size*/) {
  Call call("sparse_slice_grad", grad);
  return call.Take(call.Get(
      SparseSliceGrad(call.View(grad), call.View(indices), Numbers(start), call.View(output_indices), call.context())));
}

}  // namespace raggrad::torch_door
