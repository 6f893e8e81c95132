// Arrays of other frameworks, read through DLPack.
#pragma once

#include <nanobind/nanobind.h>

#include "views.h"

namespace raggrad::python {

// Raises the refusal of an array by its framework, in the framework's own words.
[[noreturn]] void RaiseRefused(const nb::python_error& error, nb::handle object, const Argument& argument);

// The view of anything with __dlpack__, in host memory or on a CUDA device. An array that is not contiguous is copied.
TensorView ViewOfDlpack(nb::handle object, const ArrayType& type, const Argument& argument, KeepAlive& keep);

// The view of an array that has only __cuda_array_interface__.
TensorView ViewOfCudaArray(nb::handle object, const Argument& argument, KeepAlive& keep);

// The view of a TensorFlow tensor or variable.
TensorView ViewOfTensorFlow(nb::handle object, const ArrayType& type, const Argument& argument, KeepAlive& keep);

}  // namespace raggrad::python
