// Arrays of other frameworks, read through DLPack.
#pragma once

#include <nanobind/nanobind.h>

#include "views.h"

namespace raggrad::python {

// The view of anything with __dlpack__. An array that is not contiguous is copied; one outside host memory is
// UNIMPLEMENTED.
TensorView ViewOfDlpack(nb::handle object, Kind kind, const Argument& argument, KeepAlive& keep);

// The view of a TensorFlow tensor or variable.
TensorView ViewOfTensorFlow(nb::handle object, const Argument& argument, KeepAlive& keep);

}  // namespace raggrad::python
