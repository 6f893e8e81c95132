// NumPy's C API, shared by all files of the module. module.cc fills in the table.
#pragma once

#include <nanobind/nanobind.h>

#define PY_ARRAY_UNIQUE_SYMBOL raggrad_numpy_api
#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#ifndef RAGGRAD_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "raggrad/core/shape.h"

namespace raggrad::python {

inline Shape ShapeOf(PyArrayObject* array) noexcept {
  static_assert(sizeof(npy_intp) == sizeof(int64_t));
  return Shape(
      std::span(reinterpret_cast<const int64_t*>(PyArray_DIMS(array)), static_cast<size_t>(PyArray_NDIM(array))));
}

}  // namespace raggrad::python
