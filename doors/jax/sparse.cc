#include "sparse.h"

#include <algorithm>

namespace raggrad::jax_door {
namespace {

::raggrad::Result<SparseFillEmptyRowsPaddedOutput> Fill(Call& call, const TensorView& indices,
                                                        const TensorView& values) {
  return SparseFillEmptyRowsPadded(indices, values, TensorView::Vector(call.Integers("shape")), call.View(2),
                                   call.Result(1).shape[0], call.context());
}

}  // namespace

Status FillEmptyRows(Call& call) {
  const TensorView indices = call.WideView(0);
  const TensorView values = call.View(1);
  if (call.num_arguments() < 4) return Call::Done(Fill(call, indices, values));
  const auto count = call.Count(3, "count", values.dim(0));
  if (!count.ok()) return count.status();
  call.SetPlaces({0, 1, 2, -1, 4});  // there are fewer places than Python's result has
  const auto filled = Fill(call, FirstRows(indices, *count), FirstRows(values, *count));
  if (!filled.ok()) return filled.status();
  auto* const places = static_cast<int64_t*>(call.Result(3).data);
  std::copy_n(filled->reverse_index_map.As<int64_t>(), *count, places);
  std::fill(places + *count, places + values.dim(0), call.Result(1).shape[0]);
  return {};
}

Status FillEmptyRowsGrad(Call& call) {
  return Call::Done(SparseFillEmptyRowsGrad(call.WideView(0), call.View(1), call.context()));
}

Status Slice(Call& call) {
  call.SetPlaces({0, 1, -1, 2});  // Python knows the shape
  return Call::Done(SparseSlicePadded(call.WideView(0), call.View(1), TensorView::Vector(call.Integers("shape")),
                                      TensorView::Vector(call.Integers("start")),
                                      TensorView::Vector(call.Integers("size")), call.Result(1).shape[0],
                                      call.context()));
}

}  // namespace raggrad::jax_door
