// Element types as NumPy, DLPack and people name them.
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
// Python error, if the installed ml_dtypes has no such type.
PyArray_Descr* DescrOf(DType dtype);

// kInvalid if the library has no such type.
DType DTypeOfDlpack(nb::dlpack::dtype dtype);

// Nothing for strings and for types that are packed in DLPack and not in NumPy. Quantized types are integers.
std::optional<nb::dlpack::dtype> DlpackOf(DType dtype);

// The integers that store a quantized type; other types are stored as themselves.
DType StorageOf(DType dtype);

// A dtype as users write it: a name, a NumPy dtype or type, or anything with a .name (tf.DType) or that prints as
// "torch.<name>". None is kInvalid. Raises INVALID_ARGUMENT, naming operator and attribute, if it is none of these.
DType ParseDType(nb::handle object, std::string_view op, std::string_view attribute);

}  // namespace raggrad::python
