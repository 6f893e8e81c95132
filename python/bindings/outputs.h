// Operators' outputs as Python arrays. Numbers are handed over without a copy: the array owns the memory.
#pragma once

#include <nanobind/nanobind.h>

#include "raggrad/core/tensor.h"
#include "views.h"

namespace raggrad::python {

// What a view looks like in NumPy: its memory, kept alive by `owner`. Strings become an object array of bytes.
nb::object NumpyView(const TensorView& view, nb::handle owner, bool writable);

// What outputs are made to resemble.
struct Likeness {
  Kind kind = Kind::kNumpy;
  nb::object array_namespace;  // of kArrayApi
};
Likeness LikenessOf(nb::handle like);

// The output in the kind of `like`. Quantized types, which no framework shares, become raggrad.Tensor.
nb::object MakeOutput(Tensor output, const Likeness& like);
nb::object MakeOutput(Tensor output, nb::handle like);

// An output that is part of something larger, which `owner` keeps alive.
nb::object MakeOutput(const TensorView& view, nb::handle owner, const Likeness& like);

}  // namespace raggrad::python
