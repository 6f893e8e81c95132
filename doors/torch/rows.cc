#include "rows.h"

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

std::tuple<TorchTensor, TorchTensor> CoalesceRows(const TorchTensor& values, const TorchTensor& rows,
                                                  int64_t table_rows, const std::optional<std::string>& accumulation) {
  Call call("coalesce_rows", values, accumulation);
  IndexedSlices unique = call.Get(Coalesce({call.View(values), call.View(rows), table_rows}, call.context()));
  return {call.Take(std::move(unique.values)), call.Take(std::move(unique.indices))};
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
