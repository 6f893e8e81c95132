#include "tables.h"

#include "numpy_api.h"
#include "runtime.h"
#include "tensor.h"

namespace raggrad::python {
namespace {

bool CanBeWritten(nb::handle object, const TensorView& view) {
  switch (KindOf(object)) {
    case Kind::kNumpy:
      return PyArray_Check(object.ptr()) && PyArray_ISCARRAY(reinterpret_cast<PyArrayObject*>(object.ptr()));
    case Kind::kTensor:
      return AsTensor(object)->writable;
    case Kind::kTorch:  // a view of another address is a copy
      return nb::cast<uintptr_t>(object.attr("data_ptr")()) == reinterpret_cast<uintptr_t>(view.data);
    default:
      return false;
  }
}

}  // namespace

MutableTensorView TableOf(nb::handle object, const Argument& argument, KeepAlive& keep) {
  TensorView view = ViewOf(object, argument, keep);
  if (!CanBeWritten(object, view)) {
    RaiseInvalid(argument.op, ": ", argument.Name(), " is changed in place. [", argument.Name(),
                 ": expected a writable, contiguous NumPy array, torch tensor or raggrad.Tensor, got another ",
                 TypeName(object), "]");
  }
  return {const_cast<void*>(view.data), view.dtype, std::move(view.shape), view.device};
}

}  // namespace raggrad::python
