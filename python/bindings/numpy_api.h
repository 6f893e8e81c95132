// NumPy's C API, shared by all files of the module. module.cc fills in the table.
#pragma once

#include <nanobind/nanobind.h>

#define PY_ARRAY_UNIQUE_SYMBOL raggrad_numpy_api
#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#ifndef RAGGRAD_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
