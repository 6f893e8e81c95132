#include "tables.h"

#include "numpy_api.h"
#include "runtime.h"
#include "tensor.h"

namespace raggrad::python {
namespace {

constexpr std::string_view kNotOneOfThese = "not one of these";

std::string_view Obstacle(PyArrayObject* array) {
  if (PyArray_ISCARRAY(array)) return "";
  if (!PyArray_ISWRITEABLE(array)) return "read-only";
  if (!PyArray_ISNOTSWAPPED(array)) return "in the other byte order";
  if (!PyArray_ISALIGNED(array)) return "not aligned";
  return PyArray_IS_F_CONTIGUOUS(array) ? "in Fortran order" : "strided";
}

// The reason why an object cannot be changed in place; empty if it can.
std::string_view Obstacle(nb::handle object, const TensorView& view) {
  switch (KindOf(object)) {
    case Kind::kNumpy:
      if (!PyArray_Check(object.ptr())) return kNotOneOfThese;
      return Obstacle(reinterpret_cast<PyArrayObject*>(object.ptr()));
    case Kind::kTensor:
      return AsTensor(object)->writable ? "" : "read-only";
    case Kind::kTorch:  // a view with another address is a copy
      return nb::cast<uintptr_t>(object.attr("data_ptr")()) == reinterpret_cast<uintptr_t>(view.data) ? "" : "strided";
    case Kind::kCupy:
      return nb::cast<uintptr_t>(object.attr("data").attr("ptr")) == reinterpret_cast<uintptr_t>(view.data) ? ""
                                                                                                            : "strided";
    default:
      return kNotOneOfThese;
  }
}

}  // namespace

MutableTensorView TableOf(nb::handle object, const Argument& argument, KeepAlive& keep) {
  TensorView view = ViewOf(object, argument, keep);
  if (const std::string_view obstacle = Obstacle(object, view); !obstacle.empty()) {
    RaiseInvalid(argument.op, ": ", argument.Name(), " is changed in place. [", argument.Name(),
                 ": expected a writable, contiguous NumPy array, torch tensor, CuPy array or raggrad.Tensor, got ",
                 TypeName(object), ", which is ", obstacle, "]");
  }
  return {const_cast<void*>(view.data), view.dtype, std::move(view.shape), view.device};
}

void NoteChange(nb::handle table) {
  if (KindOf(table) != Kind::kTorch || nb::cast<bool>(table.attr("is_inference")())) return;  // torch counts no others
  static PyObject* increment_version = nullptr;
  ImportOnce(increment_version, "torch.autograd.graph", "increment_version")(table);
}

}  // namespace raggrad::python
