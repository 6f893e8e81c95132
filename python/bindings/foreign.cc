#include "foreign.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "dtypes.h"
#include "runtime.h"

namespace raggrad::python {
namespace {

// torch's own function makes a capsule in a tenth of the time that its __dlpack__ takes. It ignores requires_grad,
// which does not matter here, and the marks of lazy conjugation and negation, which do.
nb::object TorchCapsule(nb::handle tensor) {
  static PyObject* to_dlpack = nullptr;
  nb::object plain = nb::borrow(tensor);
  if (nb::cast<bool>(plain.attr("is_conj")())) plain = plain.attr("resolve_conj")();
  if (nb::cast<bool>(plain.attr("is_neg")())) plain = plain.attr("resolve_neg")();
  return ImportOnce(to_dlpack, "torch.utils.dlpack", "to_dlpack")(plain);
}

bool InHostMemory(int device_type) {
  return device_type == nb::device::cpu::value || device_type == nb::device::cuda_host::value ||
         device_type == nb::device::rocm_host::value;
}

[[noreturn]] void RaiseWrongDevice(const KeepAlive::Import& array, const Argument& argument) {
  std::string device;
  switch (array.device_type()) {
    case nb::device::cuda::value:
    case nb::device::cuda_managed::value:
      device = "cuda";
      break;
    case nb::device::rocm::value:
      device = "rocm";
      break;
    case nb::device::metal::value:
      device = "metal";
      break;
    default:
      device = "DLPack device type " + std::to_string(array.device_type());
  }
  Raise(MakeError(Code::kUnimplemented, argument.op, ": ", argument.Name(), " is on ", device, ":", array.device_id(),
                  "; this version computes on the CPU. [", argument.Name(), ": expected device cpu, got ", device, ":",
                  array.device_id(), "]"));
}

bool DenseAndAligned(const KeepAlive::Import& array, size_t element) {
  const std::span dims(array.shape_ptr(), array.ndim());
  if (std::ranges::find(dims, 0) != dims.end()) return true;  // the product of the others may overflow
  int64_t expected = 1;
  for (size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != expected) return false;
    expected *= static_cast<int64_t>(array.shape(i));
  }
  return reinterpret_cast<uintptr_t>(array.data()) % element == 0;
}

// Copies an array of any strides, outermost dimension first. Returns the end of the copy.
std::byte* CopyStrided(const KeepAlive::Import& array, size_t element, size_t dim, const std::byte* from,
                       std::byte* to) {
  if (dim == array.ndim()) {
    std::memcpy(to, from, element);
    return to + element;
  }
  // The stride of a dimension of size 1 may be anything.
  const int64_t step = array.shape(dim) > 1 ? array.stride(dim) * static_cast<int64_t>(element) : 0;
  for (size_t i = 0; i < array.shape(dim); ++i, from += step) to = CopyStrided(array, element, dim + 1, from, to);
  return to;
}

// Imports an array of another framework. If the framework refuses, raises with its own words.
KeepAlive::Import ImportDlpack(nb::handle object, Kind kind, const Argument& argument) {
  try {
    KeepAlive::Import array;
    const nb::object source = kind == Kind::kTorch ? TorchCapsule(object) : nb::borrow(object);
    if (nb::try_cast(source, array, false)) return array;
    const nb::object capsule = source.attr("__dlpack__")();
    PyErr_SetString(PyExc_ValueError, "its __dlpack__ gives nothing that can be read");
    throw nb::python_error();
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    RaiseInvalid(argument.op, ": cannot read ", argument.Name(), " (", TypeName(object),
                 "): ", nb::str(error.value()).c_str());
  }
}

}  // namespace

TensorView ViewOfDlpack(nb::handle object, Kind kind, const Argument& argument, KeepAlive& keep) {
  const KeepAlive::Import& array = keep.Add(ImportDlpack(object, kind, argument));
  if (!InHostMemory(array.device_type())) RaiseWrongDevice(array, argument);
  const DType dtype = DTypeOfDlpack(array.dtype());
  if (dtype == DType::kInvalid) {
    RaiseInvalid(argument.op, ": ", argument.Name(), " has a type that TensorFlow has not: DLPack code ",
                 array.dtype().code, ", ", array.dtype().bits, " bits");
  }
  TensorView view{array.data(), dtype, Shape(std::span(array.shape_ptr(), array.ndim())), Device::Cpu()};
  const size_t element = DTypeSize(dtype);
  if (!DenseAndAligned(array, element)) {
    std::byte* copy = keep.AddBytes(array.size() * element);
    CopyStrided(array, element, 0, static_cast<const std::byte*>(view.data), copy);
    view.data = copy;
  }
  return view;
}

// TensorFlow cannot share strings (it would abort), quantized types and variables. It has to copy them.
TensorView ViewOfTensorFlow(nb::handle object, const Argument& argument, KeepAlive& keep) {
  const DType dtype = ParseDType(object.attr("dtype"), argument.op, argument.Name());
  const bool shares = nb::hasattr(object, "__dlpack__") && DlpackOf(dtype) && StorageOf(dtype) == dtype;
  if (shares || !nb::hasattr(object, "numpy")) return ViewOfDlpack(object, Kind::kTensorFlow, argument, keep);
  TensorView view = ViewOfAny(object.attr("numpy")(), argument, keep);
  if (view.dtype == StorageOf(dtype)) view.dtype = dtype;
  return view;
}

}  // namespace raggrad::python
