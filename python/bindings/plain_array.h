// NumPy arrays of numbers that lie in memory as operators read it, viewed without the help of Python: nothing here
// calls a Python function or counts a reference. So any thread may call it, with or without the GIL, while nobody can
// change the array.
#pragma once

#include <cstddef>

#include "dtypes.h"
#include "numpy_api.h"
#include "raggrad/core/tensor_view.h"

namespace raggrad::python {

// Views such an array. `owner` is the object that keeps its memory alive: for a slice, the array that was cut. Returns
// false, with both undefined, for any other object, and if the view would own memory because of its many dimensions.
inline bool ViewPlainArray(PyObject* object, TensorView& view, PyObject*& owner) noexcept {
  if (!PyArray_CheckExact(object)) return false;
  auto* const array = reinterpret_cast<PyArrayObject*>(object);
  const DType dtype = DTypeOfDescr(PyArray_DESCR(array));
  if (dtype == DType::kInvalid || dtype == DType::kString || !PyArray_ISCARRAY_RO(array)) return false;
  if (PyArray_NDIM(array) > Shape::kInside) return false;
  // Made in place: a copy of the shape would wait until its dimensions are stored.
  new (&view) TensorView{PyArray_DATA(array), dtype, ShapeOf(array), {}};
  PyObject* const base = PyArray_BASE(array);
  owner = base == nullptr || PyArray_CHKFLAGS(array, NPY_ARRAY_OWNDATA) ? object : base;
  return true;
}

// Asks the memory for an object that may be such an array.
inline void FetchArray(PyObject* object) noexcept {
  constexpr size_t kCacheLine = 64;  // arrays take 80 to 100 bytes
  __builtin_prefetch(object);
  __builtin_prefetch(reinterpret_cast<const std::byte*>(object) + kCacheLine);
}

// Asks the memory for its dimensions, which lie elsewhere. Waits for the array.
inline void FetchDimsOf(PyObject* object) noexcept {
  if (PyArray_CheckExact(object)) __builtin_prefetch(PyArray_DIMS(reinterpret_cast<PyArrayObject*>(object)));
}

}  // namespace raggrad::python
