// Arrays that an operator changes in place.
#pragma once

#include "views.h"

namespace raggrad::python {

// The view of a writable, contiguous NumPy array, torch tensor, CuPy array or raggrad.Tensor. Raises for everything
// else: the operator would change a copy of it.
MutableTensorView TableOf(nb::handle object, const Argument& argument, KeepAlive& keep);

// Tells the framework that owns the table that it was changed. torch counts changes: a graph that needs the old values
// then refuses to run backwards.
void NoteChange(nb::handle table);

}  // namespace raggrad::python
