#include "outputs.h"

#include <new>
#include <utility>
#include <vector>

#include "dtypes.h"
#include "numpy_api.h"
#include "runtime.h"
#include "tensor.h"

namespace raggrad::python {
namespace {

// The base of an array that shows an output: a Python object that owns the tensor. It takes a quarter of the
// instructions of a capsule, which would need the tensor in memory of its own.
struct OwnedTensor {
  PyObject_HEAD;
  Tensor tensor;
};

void Dealloc(PyObject* self) noexcept {
  PyTypeObject* const type = Py_TYPE(self);
  reinterpret_cast<OwnedTensor*>(self)->tensor.~Tensor();
  PyObject_Free(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyTypeObject* OwnedTensorType() {
  static PyTypeObject* made = nullptr;  // the GIL guards it
  if (made != nullptr) return made;
  PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(&Dealloc)}, {0, nullptr}};
  PyType_Spec spec = {"raggrad._core.Memory", sizeof(OwnedTensor), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  made = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (made == nullptr) throw nb::python_error();
  return made;
}

nb::object OwnerOf(Tensor tensor) {
  auto* const owner = PyObject_New(OwnedTensor, OwnedTensorType());
  if (owner == nullptr) throw nb::python_error();
  new (&owner->tensor) Tensor(std::move(tensor));
  return nb::steal(reinterpret_cast<PyObject*>(owner));
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
nb::object Share(const TensorView& view, nb::handle owner) {
  const std::vector<size_t> dims(view.shape.dims().begin(), view.shape.dims().end());
  const std::optional<nb::dlpack::dtype> dtype = DlpackOf(view.dtype);
  if (!dtype) RaiseInvalid("an output of dtype ", view.dtype, " cannot be shared by DLPack");
  nb::ndarray<Framework> array(const_cast<void*>(view.data), dims.size(), dims.data(), owner, nullptr, *dtype,
                               nb::device::cpu::value);
  return nb::borrow(array.cast());
}

// torch imports a bare capsule in a tenth of the time that an object with __dlpack__ takes.
nb::object TorchFrom(const nb::object& capsule) {
  static PyObject* from_dlpack = nullptr;
  return ImportOnce(from_dlpack, "torch.utils.dlpack", "from_dlpack")(capsule);
}

nb::object JaxFrom(const nb::object& array) {
  static PyObject* from_dlpack = nullptr;
  return ImportOnce(from_dlpack, "raggrad._device", "jax_array")(array);
}

bool HasWideNumbers(DType dtype) noexcept {
  return dtype == DType::kInt64 || dtype == DType::kUInt64 || dtype == DType::kFloat64 || dtype == DType::kComplex128;
}

// An array on a CUDA device in the kind of `like`. Frameworks ask its __dlpack__, which orders the streams.
nb::object FromDlpack(nb::object array, const Likeness& like) {
  static PyObject* cupy_from_dlpack = nullptr;
  switch (like.kind) {
    case Kind::kTorch:
      return TorchFrom(array);
    case Kind::kJax:
      return JaxFrom(array);
    case Kind::kCupy:
      return ImportOnce(cupy_from_dlpack, "cupy", "from_dlpack")(array);
    case Kind::kArrayApi:
      return like.array_namespace.attr("from_dlpack")(array);
    default:
      return array;
  }
}

nb::object MakeDeviceOutput(Tensor output, const Likeness& like) {
  if (output.view().data == nullptr) {
    if (nb::object empty = EmptyOutput(like.kind, output.view()); empty.is_valid()) return empty;
  }
  Kind owner = Kind::kTensor;
  const bool shared = like.kind != Kind::kTensor && StorageOf(output.dtype()) == output.dtype();
  if (nb::object array = shared ? TakeOutput(output, owner) : nb::object(); array.is_valid()) {
    return owner == like.kind ? array : FromDlpack(std::move(array), like);
  }
  nb::object tensor = WrapTensor(std::move(output), like.source);
  return shared ? FromDlpack(std::move(tensor), like) : tensor;
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

Likeness LikenessOf(nb::handle like) {
  Likeness likeness{.kind = KindOf(like)};
  if (likeness.kind == Kind::kArrayApi) likeness.array_namespace = like.attr("__array_namespace__")();
  if (likeness.kind == Kind::kTensor) likeness.source = AsTensor(like)->keep.source();
  return likeness;
}

nb::object MakeOutput(const TensorView& view, nb::handle owner, const Likeness& like) {
  if (view.device.is_cuda()) return FromDlpack(WrapTensor(view, owner, like.source), like);
  const Kind kind = like.kind;
  const bool quantized = StorageOf(view.dtype) != view.dtype;
  if (kind == Kind::kTensor || quantized) return WrapTensor(view, owner);
  if (kind == Kind::kNumpy || kind == Kind::kCupy) return NumpyView(view, owner, true);
  if (view.dtype == DType::kString) {
    nb::object array = NumpyView(view, owner, true);
    return kind == Kind::kTensorFlow ? nb::module_::import_("tensorflow").attr("constant")(array) : array;
  }
  switch (kind) {
    case Kind::kTorch:
      return TorchFrom(Share<nb::no_framework>(view, owner));
    case Kind::kJax:
      return HasWideNumbers(view.dtype) ? JaxFrom(WrapTensor(view, owner)) : Share<nb::jax>(view, owner);
    case Kind::kTensorFlow:
      return Share<nb::tensorflow>(view, owner);
    default:
      return like.array_namespace.attr("from_dlpack")(WrapTensor(view, owner));
  }
}

nb::object MakeOutput(Tensor output, const Likeness& like) {
  const TensorView view = output.view();
  if (view.device.is_cuda()) return MakeDeviceOutput(std::move(output), like);
  if (like.kind == Kind::kTensor || StorageOf(view.dtype) != view.dtype) return WrapTensor(std::move(output));
  // An output without elements owns nothing, and strings are copied while `output` still lives.
  const bool shared = view.data != nullptr && view.dtype != DType::kString;
  return MakeOutput(view, shared ? OwnerOf(std::move(output)) : nb::none(), like);
}

nb::object NamedTuple(nb::handle type, std::span<nb::object> items) {
  auto* const named = reinterpret_cast<PyTypeObject*>(type.ptr());
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(named, Py_tp_alloc));
  nb::object tuple = nb::steal(allocate(named, static_cast<Py_ssize_t>(items.size())));
  if (!tuple.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < items.size(); ++i) {
    PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), items[i].release().ptr());
  }
  return tuple;
}

nb::object MakeOutput(Tensor output, nb::handle like) { return MakeOutput(std::move(output), LikenessOf(like)); }

}  // namespace raggrad::python
