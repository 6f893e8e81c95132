#include "foreign.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "dtypes.h"
#include "raggrad/cuda/foreign_memory.h"
#include "runtime.h"

namespace raggrad::python {
namespace {

using namespace nb::literals;

// torch marks tensors as conjugated or negated, and computes that when they are read.
nb::object WithoutLazyMarks(nb::object tensor) {
  if (nb::cast<bool>(tensor.attr("is_conj")())) tensor = tensor.attr("resolve_conj")();
  if (nb::cast<bool>(tensor.attr("is_neg")())) tensor = tensor.attr("resolve_neg")();
  return tensor;
}

// torch's own function makes a capsule in a tenth of the time that its __dlpack__ takes. It ignores requires_grad,
// which does not matter here, and lazy marks, which do.
nb::object TorchCapsule(nb::handle tensor) {
  static PyObject* to_dlpack = nullptr;
  return ImportOnce(to_dlpack, "torch.utils.dlpack", "to_dlpack")(WithoutLazyMarks(nb::borrow(tensor)));
}

// An array of a framework, of any strides.
struct Strided {
  const void* data;
  nb::dlpack::dtype dtype;
  std::span<const int64_t> shape;
  const int64_t* strides;  // in elements; null: row-major
  int device_type, device_id;
};

Strided Describe(const KeepAlive::Import& array) {
  return {array.data(),       array.dtype(),       {array.shape_ptr(), array.ndim()},
          array.stride_ptr(), array.device_type(), array.device_id()};
}

Strided Describe(const dlpack::Array& array) {
  return {array.begin(), array.dtype,       {array.shape, static_cast<size_t>(array.rank)},
          array.strides, array.device.type, array.device.id};
}

bool InHostMemory(int device_type) {
  return device_type == nb::device::cpu::value || device_type == nb::device::cuda_host::value ||
         device_type == nb::device::rocm_host::value;
}

bool OnCuda(int device_type) {
  return device_type == nb::device::cuda::value || device_type == nb::device::cuda_managed::value;
}

Device DeviceOf(const Strided& array, const Argument& argument) {
  if (InHostMemory(array.device_type)) return Device::Cpu();
  if (OnCuda(array.device_type)) return Device::Cuda(array.device_id);
  std::string device = "DLPack device type " + std::to_string(array.device_type);
  if (array.device_type == nb::device::rocm::value) device = "rocm";
  if (array.device_type == nb::device::metal::value) device = "metal";
  Raise(MakeError(Code::kUnimplemented, argument.op, ": ", argument.Name(), " is on ", device, ":", array.device_id,
                  ". [", argument.Name(), ": expected host memory or a CUDA device, got ", device, ":", array.device_id,
                  "]"));
}

bool IsDense(const Strided& array) {
  if (array.strides == nullptr) return true;
  if (std::ranges::find(array.shape, 0) != array.shape.end()) return true;  // the product of the others may overflow
  int64_t expected = 1;
  for (size_t i = array.shape.size(); i-- > 0;) {
    if (array.shape[i] != 1 && array.strides[i] != expected) return false;
    expected *= array.shape[i];
  }
  return true;
}

// Copies an array of any strides, outermost dimension first. Returns the end of the copy.
std::byte* CopyStrided(const Strided& array, size_t element, size_t dim, const std::byte* from, std::byte* to) {
  if (dim == array.shape.size()) {
    std::memcpy(to, from, element);
    return to + element;
  }
  // The stride of a dimension of size 1 may be anything.
  const int64_t step = array.shape[dim] > 1 ? array.strides[dim] * static_cast<int64_t>(element) : 0;
  for (int64_t i = 0; i < array.shape[dim]; ++i, from += step) to = CopyStrided(array, element, dim + 1, from, to);
  return to;
}

// The capsule of an array on a CUDA device, readable in the order of the call's stream; null if it is elsewhere.
nb::object DeviceCapsule(nb::handle object, const ArrayType& type, KeepAlive& keep) {
  if (!nb::hasattr(object, "__dlpack_device__")) return {};
  const nb::tuple place(object.attr("__dlpack_device__")());
  if (!OnCuda(nb::cast<int>(nb::int_(place[0])))) return {};
  if (!keep.source()) keep.Use(SourceOf(type, Device::Cuda(nb::cast<int32_t>(nb::int_(place[1])))));
  const DeviceSource& source = *keep.source();
  // DLPack's numbers: -1 asks for no order, 1 is the default stream.
  constexpr int64_t kNoOrder = -1, kDefaultStream = 1;
  int64_t stream = kNoOrder;
  if (source.kind != type.kind || source.memory == nullptr) {
    stream = source.stream == nullptr ? kDefaultStream : reinterpret_cast<int64_t>(source.stream);
  }
  return object.attr("__dlpack__")("stream"_a = stream);
}

// Imports an array by __dlpack__. If the framework refuses, raises with its own words.
KeepAlive::Import ImportDlpack(nb::handle object, const ArrayType& type, const Argument& argument, KeepAlive& keep) {
  try {
    KeepAlive::Import array;
    nb::object source = type.kind == Kind::kTorch ? TorchCapsule(object) : DeviceCapsule(object, type, keep);
    if (!source.is_valid()) source = nb::borrow(object);
    if (nb::try_cast(source, array, false)) return array;
    const nb::object capsule = source.attr("__dlpack__")();
    PyErr_SetString(PyExc_ValueError, "its __dlpack__ gives nothing that can be read");
    throw nb::python_error();
  } catch (const nb::python_error& error) {
    RaiseRefused(error, object, argument);
  }
}

// Reads an array by its framework's exchange functions, which take a tenth of the time of __dlpack__. They ignore the
// marks of lazy conjugation and negation. Only complex arrays and parts of them have those: of parts, the strides show
// it, unless there is but one element.
std::optional<dlpack::Array> Exchange(nb::object& object, const ArrayType& type, const Argument& argument) {
  if (type.exchange == nullptr) return std::nullopt;
  dlpack::Array array;
  const auto read = [&] {
    if (type.exchange->array_from_object(object.ptr(), &array) != 0) throw nb::python_error();
  };
  try {
    read();
    const bool complex = array.dtype.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Complex);
    const Strided described = Describe(array);
    const bool one = std::ranges::all_of(described.shape, [](int64_t dim) { return dim == 1; });
    if (type.kind == Kind::kTorch && (complex || one || !IsDense(described))) {
      object = WithoutLazyMarks(object);
      read();
    }
  } catch (const nb::python_error& error) {
    RaiseRefused(error, object, argument);
  }
  return array;
}

TensorView ViewOfStrided(const Strided& array, nb::handle object, const ArrayType& type, const Argument& argument,
                         KeepAlive& keep) {
  const Device device = DeviceOf(array, argument);
  const DType dtype = DTypeOfDlpack(array.dtype);
  if (dtype == DType::kInvalid) {
    RaiseInvalid(argument.op, ": ", argument.Name(), " has a type that TensorFlow has not: DLPack code ",
                 array.dtype.code, ", ", array.dtype.bits, " bits");
  }
  if (device.is_cuda() && !keep.source()) {
    keep.Use(SourceOf(type, device));
  } else if (device.is_cuda() && type.kind == Kind::kTorch && keep.source()->kind != Kind::kTorch) {
    OrderStreams(device, SourceOf(type, device).stream, keep.source()->stream);  // others' __dlpack__ did that
  }
  TensorView view{array.data, dtype, Shape(array.shape), device};
  const size_t element = DTypeSize(dtype);
  if (IsDense(array) && reinterpret_cast<uintptr_t>(array.data) % element == 0) return view;
  if (device.is_cuda()) {
    static PyObject* contiguous = nullptr;
    if (type.kind != Kind::kTorch && type.kind != Kind::kCupy) {
      RaiseInvalid(argument.op, ": ", argument.Name(), " is not in row-major order [", argument.Name(),
                   ": expected a contiguous array on ", device, "]");
    }
    return ViewOfDlpack(ImportOnce(contiguous, "raggrad._device", "contiguous")(object), type, argument, keep);
  }
  const auto count = static_cast<size_t>(view.shape.NumElements().value_or(0));
  std::byte* const copy = keep.AddBytes(count * element);
  CopyStrided(array, element, 0, static_cast<const std::byte*>(view.data), copy);
  view.data = copy;
  return view;
}

}  // namespace

void RaiseRefused(const nb::python_error& error, nb::handle object, const Argument& argument) {
  if (!error.matches(PyExc_Exception)) throw error;
  RaiseInvalid(argument.op, ": cannot read ", argument.Name(), " (", TypeName(object),
               "): ", nb::str(error.value()).c_str());
}

TensorView ViewOfDlpack(nb::handle object, const ArrayType& type, const Argument& argument, KeepAlive& keep) {
  nb::object array = nb::borrow(object);
  if (const std::optional<dlpack::Array> exchanged = Exchange(array, type, argument)) {
    TensorView view = ViewOfStrided(Describe(*exchanged), array, type, argument, keep);
    keep.Add(std::move(array));
    return view;
  }
  return ViewOfStrided(Describe(keep.Add(ImportDlpack(object, type, argument, keep))), object, type, argument, keep);
}

TensorView ViewOfCudaArray(nb::handle object, const Argument& argument, KeepAlive& keep) {
  static PyObject* array_interface = nullptr;
  nb::tuple parts;
  try {
    parts = nb::tuple(ImportOnce(array_interface, "raggrad._device", "array_interface")(object));
  } catch (const nb::python_error& error) {
    RaiseRefused(error, object, argument);
  }
  void* const data = reinterpret_cast<void*>(nb::cast<uintptr_t>(parts[0]));
  std::vector<int64_t> dims;
  for (const nb::handle dim : nb::borrow<nb::tuple>(parts[1])) dims.push_back(nb::cast<int64_t>(dim));
  const DType dtype = ParseDType(parts[2], argument.op, argument.Name());
  const Result<Device> device = DeviceOfMemory(argument.op, data);
  if (!device.ok()) Raise(device.status());
  const DeviceSource& source = keep.Use({Kind::kTensor, *device});
  if (!nb::handle(parts[3]).is_none()) {
    OrderStreams(*device, reinterpret_cast<void*>(nb::cast<uintptr_t>(parts[3])), source.stream);
  }
  keep.Add(nb::borrow(object));
  return {data, dtype, Shape(dims), *device};
}

// TensorFlow cannot share strings (it would abort), quantized types and variables. It has to copy them.
TensorView ViewOfTensorFlow(nb::handle object, const ArrayType& type, const Argument& argument, KeepAlive& keep) {
  const DType dtype = ParseDType(object.attr("dtype"), argument.op, argument.Name());
  const bool shares = nb::hasattr(object, "__dlpack__") && DlpackOf(dtype) && StorageOf(dtype) == dtype;
  if (shares || !nb::hasattr(object, "numpy")) return ViewOfDlpack(object, type, argument, keep);
  TensorView view = ViewOfAny(object.attr("numpy")(), argument, keep);
  if (view.dtype == StorageOf(dtype)) view.dtype = dtype;
  return view;
}

}  // namespace raggrad::python
