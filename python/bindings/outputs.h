// Operators' outputs as Python arrays. Numbers are handed over without a copy: the array owns the memory.
#pragma once

#include <nanobind/nanobind.h>

#include "raggrad/core/tensor.h"
#include "views.h"

namespace raggrad::python {

// What a view looks like in NumPy: its memory, kept alive by `owner`. Strings become an object array of bytes.
nb::object NumpyView(const TensorView& view, nb::handle owner, bool writable);

// The output in the kind of `like`. Quantized types, which no framework shares, become raggrad.Tensor.
nb::object MakeOutput(Tensor output, nb::handle like);

}  // namespace raggrad::python
