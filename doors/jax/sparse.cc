#include "sparse.h"

namespace raggrad::jax_door {

Status FillEmptyRows(Call& call) {
  return Call::Done(SparseFillEmptyRowsPadded(call.WideView(0), call.View(1),
                                              TensorView::Vector(call.Integers("shape")), call.View(2),
                                              call.Result(1).shape[0], call.context()));
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
