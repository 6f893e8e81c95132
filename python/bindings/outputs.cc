#include "outputs.h"

#include <vector>

#include "dtypes.h"
#include "numpy_api.h"
#include "runtime.h"
#include "tensor.h"

namespace raggrad::python {
namespace {

nb::capsule OwnerOf(Tensor tensor) {
  return nb::capsule(new Tensor(std::move(tensor)), [](void* p) noexcept { delete static_cast<Tensor*>(p); });
}

npy_intp* DimsOf(const Shape& shape) {
  static_assert(sizeof(npy_intp) == sizeof(int64_t));
  return reinterpret_cast<npy_intp*>(const_cast<int64_t*>(shape.dims().data()));  // NumPy does not write to them
}

nb::object BytesArray(const TensorView& view) {
  nb::object array = nb::steal(PyArray_SimpleNew(view.rank(), DimsOf(view.shape), NPY_OBJECT));
  if (!array.is_valid()) throw nb::python_error();
  auto* numpy_array = reinterpret_cast<PyArrayObject*>(array.ptr());
  auto** items = static_cast<PyObject**>(PyArray_DATA(numpy_array));
  const String* strings = view.As<String>();
  for (npy_intp i = 0; i < PyArray_SIZE(numpy_array); ++i) {
    PyObject* item = PyBytes_FromStringAndSize(strings[i].data, static_cast<Py_ssize_t>(strings[i].size));
    if (item == nullptr) throw nb::python_error();
    Py_XDECREF(std::exchange(items[i], item));
  }
  return array;
}

template <class Framework>
nb::object Share(Tensor output) {
  const TensorView view = output.view();
  const std::vector<size_t> dims(view.shape.dims().begin(), view.shape.dims().end());
  const std::optional<nb::dlpack::dtype> dtype = DlpackOf(view.dtype);
  if (!dtype) RaiseInvalid("an output of dtype ", view.dtype, " cannot be shared by DLPack");
  nb::ndarray<Framework> array(const_cast<void*>(view.data), dims.size(), dims.data(), OwnerOf(std::move(output)),
                               nullptr, *dtype, nb::device::cpu::value);
  return nb::borrow(array.cast());
}

// torch takes a bare capsule in a tenth of the time that an object with __dlpack__ costs it.
nb::object TorchFrom(const nb::object& capsule) {
  static PyObject* from_dlpack = nullptr;
  return ImportOnce(from_dlpack, "torch.utils.dlpack", "from_dlpack")(capsule);
}

nb::object ToNumpy(Tensor output) {
  const TensorView view = output.view();
  // Without elements there is nothing to own, and strings are copied: then NumPy has its own memory.
  if (view.data == nullptr || view.dtype == DType::kString) return NumpyView(view, {}, true);
  return NumpyView(view, OwnerOf(std::move(output)), true);
}

}  // namespace

nb::object NumpyView(const TensorView& view, nb::handle owner, bool writable) {
  if (view.dtype == DType::kString) return BytesArray(view);
  PyArray_Descr* descr = DescrOf(view.dtype);
  if (descr == nullptr) RaiseInvalid("the installed ml_dtypes has no ", view.dtype);
  const int flags = writable ? NPY_ARRAY_CARRAY : NPY_ARRAY_CARRAY_RO;
  nb::object array =
      nb::steal(PyArray_NewFromDescr(&PyArray_Type, descr, view.rank(), DimsOf(view.shape), nullptr,
                                     const_cast<void*>(view.data), view.data == nullptr ? 0 : flags, nullptr));
  if (!array.is_valid()) throw nb::python_error();
  if (view.data != nullptr &&
      PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array.ptr()), owner.inc_ref().ptr()) != 0) {
    throw nb::python_error();
  }
  return array;
}

nb::object MakeOutput(Tensor output, nb::handle like) {
  const Kind kind = KindOf(like);
  const bool quantized = StorageOf(output.dtype()) != output.dtype();
  if (kind == Kind::kTensor || quantized) return WrapTensor(std::move(output));
  if (kind == Kind::kNumpy) return ToNumpy(std::move(output));
  if (output.dtype() == DType::kString) {
    nb::object array = ToNumpy(std::move(output));
    return kind == Kind::kTensorFlow ? nb::module_::import_("tensorflow").attr("constant")(array) : array;
  }
  switch (kind) {
    case Kind::kTorch:
      return TorchFrom(Share<nb::no_framework>(std::move(output)));
    case Kind::kJax:
      return Share<nb::jax>(std::move(output));
    case Kind::kTensorFlow:
      return Share<nb::tensorflow>(std::move(output));
    default:
      return like.attr("__array_namespace__")().attr("from_dlpack")(WrapTensor(std::move(output)));
  }
}

}  // namespace raggrad::python
