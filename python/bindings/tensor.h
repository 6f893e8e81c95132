// raggrad.Tensor: an array of any dtype of the library, also those that NumPy lacks.
#pragma once

#include <nanobind/nanobind.h>

#include "raggrad/core/tensor.h"
#include "views.h"

namespace raggrad::python {

struct PyTensor {
  TensorView view;
  bool writable = true;
  KeepAlive keep;  // an array that the view shares, and the stream on which device memory becomes ready
  Tensor owned;    // or the output that it shows
};

// The PyTensor inside a raggrad.Tensor, or null if the object is something else.
const PyTensor* AsTensor(nb::handle object);

// A raggrad.Tensor that takes over an operator's output. `source` is where work on device memory was queued.
nb::object WrapTensor(Tensor tensor, const std::optional<DeviceSource>& source = {});
// A raggrad.Tensor that shows memory which `owner` keeps alive.
nb::object WrapTensor(const TensorView& view, nb::handle owner, const std::optional<DeviceSource>& source = {});

void DefineTensor(nb::module_& module);

}  // namespace raggrad::python
