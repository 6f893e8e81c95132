// Each family adds its operators to the module, under TensorFlow's names. They take the arguments of raggrad.raw_ops by
// position and return what these do.
#pragma once

#include <nanobind/nanobind.h>

namespace raggrad::python {

namespace nb = nanobind;

void DefineArrow(nb::module_& module);
void DefineBatching(nb::module_& module);
void DefineIndexedSlices(nb::module_& module);
void DefineRaggedVariant(nb::module_& module);
void DefineSparseFillEmptyRows(nb::module_& module);
void DefineSparseSegment(nb::module_& module);
void DefineSparseSlice(nb::module_& module);

}  // namespace raggrad::python
