#include "rows.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <functional>

namespace raggrad::torch_door {
namespace {

template <class Id>
bool AllAscend(const TensorView& ids) {
  const Id* const begin = ids.As<Id>();
  const Id* const end = begin + ids.dim(0);
  return std::adjacent_find(begin, end, std::greater_equal<>()) == end;
}

}  // namespace

TwoTensors CoalesceRows(const TorchTensor& values, const TorchTensor& rows, int64_t table_rows,
                        const MaybeText& accumulation) {
  Call call("coalesce_rows", values, accumulation);
  IndexedSlices unique = call.Get(Coalesce({call.View(values), call.View(rows), table_rows}, call.context()));
  return {call.Take(std::move(unique.values)), call.Take(std::move(unique.indices))};
}

TorchTensor IndexAdd(const TorchTensor& input, const TorchTensor& source, const TorchTensor& index, double alpha,
                     const MaybeText& accumulation) {
  Call call("index_add", input, accumulation);
  const TensorView rows = call.View(source);
  if (input.dim() == 0 || source.scalar_type() != input.scalar_type()) {
    call.Check(Status(Code::kInvalidArgument, "[source: expected rows of the dtype of input]"));
  }
  TorchTensor sum = ::torch::stable::new_empty(input, input.sizes());
  ::torch::stable::copy_(sum, input);
  // One step of gradient descent with a negative rate: w - (-alpha * g).
  call.Check(
      ApplyRows({rows, call.View(index), input.size(0)}, Sgd{-alpha}, call.Mutable(sum, "input"), call.context()));
  return sum;
}

TorchTensor Ascends(const TorchTensor& ids) {
  Call call("ascends", ids);
  const TensorView view = call.View(ids);
  if (!Contains(IndexTypes{}, view.dtype) || view.rank() != 1) {
    call.Check(Status(Code::kInvalidArgument, "[ids: expected 1 dimension of int32 or int64]"));
  }
  Tensor answer = call.Get(AllocateOutput(call.context(), 0, DType::kBool, Shape{}));
  *answer.As<bool>() = view.dtype == DType::kInt32 ? AllAscend<int32_t>(view) : AllAscend<int64_t>(view);
  return call.Take(std::move(answer));
}

}  // namespace raggrad::torch_door
