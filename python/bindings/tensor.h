// raggrad.Tensor: an array of any dtype of the library, also those that NumPy lacks.
#pragma once

#include <nanobind/nanobind.h>

#include "raggrad/core/tensor.h"
#include "views.h"

namespace raggrad::python {

struct PyTensor {
  TensorView view;
  bool writable = true;
  KeepAlive keep;  // what the view points to: an array that it shares, or `owned`
  Tensor owned;
};

// The PyTensor inside a raggrad.Tensor, or null if the object is something else.
const PyTensor* AsTensor(nb::handle object);

// A raggrad.Tensor that takes over an operator's output.
nb::object WrapTensor(Tensor tensor);
// One that shows what `owner` keeps alive.
nb::object WrapTensor(const TensorView& view, nb::handle owner);

void DefineTensor(nb::module_& module);

}  // namespace raggrad::python
