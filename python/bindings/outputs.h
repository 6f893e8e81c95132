// Operators' outputs as Python arrays. They are handed over without a copy, except strings: the array owns the memory.
#pragma once

#include <nanobind/nanobind.h>

#include <span>

#include "raggrad/core/tensor.h"
#include "views.h"

namespace raggrad::python {

// A NumPy array that shares the view's memory, which `owner` keeps alive. Strings are copied into an object array of
// bytes.
nb::object NumpyView(const TensorView& view, nb::handle owner, bool writable);

// The kind of array that outputs become.
struct Likeness {
  Kind kind = Kind::kNumpy;
  nb::object array_namespace = {};          // for kArrayApi
  std::optional<DeviceSource> source = {};  // where the work on an output in device memory was queued
};
Likeness LikenessOf(nb::handle like);

// The output in the kind of `like`. Quantized types, which no framework shares, become raggrad.Tensor.
nb::object MakeOutput(Tensor output, const Likeness& like);
nb::object MakeOutput(Tensor output, nb::handle like);

// The same for a part of something larger, which `owner` keeps alive.
nb::object MakeOutput(const TensorView& view, nb::handle owner, const Likeness& like);

// The outputs as a named tuple of this type. Its own constructor would take as long as a tiny call's kernel.
nb::object NamedTuple(nb::handle type, std::span<nb::object> items);

}  // namespace raggrad::python
