// Arrays of other frameworks, read through DLPack.
#pragma once

#include <nanobind/nanobind.h>

#include "views.h"

namespace raggrad::python {

// Anything with __dlpack__. What is not contiguous is copied; what is not in the host's memory is UNIMPLEMENTED.
TensorView ViewOfDlpack(nb::handle object, Kind kind, const Argument& argument, KeepAlive& keep);

// TensorFlow's tensors and variables.
TensorView ViewOfTensorFlow(nb::handle object, const Argument& argument, KeepAlive& keep);

}  // namespace raggrad::python
