// Arrays that an operator changes in place.
#pragma once

#include "views.h"

namespace raggrad::python {

// A NumPy array, torch tensor or raggrad.Tensor that can be written to as it lies there. Raises for everything else: a
// copy would be changed in its stead.
MutableTensorView TableOf(nb::handle object, const Argument& argument, KeepAlive& keep);

// Says that a table was changed to the framework whose array it is. torch counts changes, so that a graph which has to
// read the table as it was before refuses to run backwards.
void NoteChange(nb::handle table);

}  // namespace raggrad::python
