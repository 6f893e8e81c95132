// Element types as NumPy, DLPack and users name them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>

#include "numpy_api.h"
#include "raggrad/core/dtype.h"

namespace raggrad::python {

namespace nb = nanobind;

// Finds NumPy's types. Called once, when the module is made.
void ImportDTypes();

// kInvalid if the library has no such type. Object arrays and 'S' arrays are strings.
DType DTypeOfDescr(PyArray_Descr* descr);

// A new reference to NumPy's type for the elements; quantized types are integers, strings are objects. Null, without a
// Python error, if the installed ml_dtypes lacks the type.
PyArray_Descr* DescrOf(DType dtype);

// kInvalid if the library has no such type.
DType DTypeOfDlpack(nb::dlpack::dtype dtype);

// Nothing for strings, and for types that DLPack packs and NumPy does not. Quantized types are integers.
std::optional<nb::dlpack::dtype> DlpackOf(DType dtype);

// The integer type that stores a quantized type; other types store themselves.
DType StorageOf(DType dtype);

// Reads a dtype as users write it: a name, a NumPy dtype or type, anything with a .name (tf.DType), or anything that
// prints as "torch.<name>". None gives kInvalid. Raises INVALID_ARGUMENT, with operator and attribute, for all else.
DType ParseDType(nb::handle object, std::string_view op, std::string_view attribute);

}  // namespace raggrad::python
