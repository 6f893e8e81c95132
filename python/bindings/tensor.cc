#include "tensor.h"

#include <nanobind/stl/string.h>

#include <new>
#include <string>
#include <vector>

#include "dtypes.h"
#include "numpy_api.h"
#include "outputs.h"
#include "runtime.h"

namespace raggrad::python {
namespace {

using namespace nb::literals;

PyTypeObject* tensor_type = nullptr;  // set once, when the module is made

bool IsWritable(nb::handle data, const TensorView& view) {
  if (const PyTensor* tensor = AsTensor(data)) return tensor->writable;
  if (PyArray_Check(data.ptr())) {
    auto* array = reinterpret_cast<PyArrayObject*>(data.ptr());
    return PyArray_DATA(array) != view.data || PyArray_ISWRITEABLE(array);  // a copy is always writable
  }
  const Kind kind = KindOf(data);
  return kind == Kind::kNumpy || kind == Kind::kTorch || kind == Kind::kCupy;
}

PyTensor Show(nb::handle data, const Argument& argument) {
  PyTensor tensor;
  Argument shown = argument;
  shown.detached = true;  // a Tensor is no longer an array of that framework
  tensor.view = ViewOf(data, shown, tensor.keep);
  tensor.writable = IsWritable(data, tensor.view);
  return tensor;
}

PyTensor Make(nb::handle data, nb::handle dtype) {
  const DType wanted = ParseDType(dtype, "Tensor", "dtype");
  PyTensor tensor = Show(data, {.op = "Tensor", .name = "data", .literal = wanted});
  if (wanted == DType::kInvalid || wanted == tensor.view.dtype) return tensor;
  if (StorageOf(wanted) != tensor.view.dtype) {
    RaiseInvalid("Tensor: data has dtype ", tensor.view.dtype, ", not ", wanted,
                 ", and arrays are not converted; convert it first, e.g. with astype");
  }
  tensor.view.dtype = wanted;  // a quantized type, given as its integers
  return tensor;
}

nb::object ToNumpy(nb::handle self) {
  const PyTensor& tensor = *AsTensor(self);
  if (!tensor.view.device.is_cpu()) {
    RaiseInvalid("Tensor: NumPy cannot read device memory [self: expected host memory, got ", tensor.view.device,
                 "]; torch, CuPy and JAX can, with from_dlpack");
  }
  return NumpyView(tensor.view, self, tensor.writable);
}

nb::object ToArray(nb::handle self, nb::handle dtype, nb::handle copy) {
  nb::object array = ToNumpy(self);
  bool copied = AsTensor(self)->view.dtype == DType::kString;
  if (!dtype.is_none()) {
    const nb::object converted = array.attr("astype")(dtype, "copy"_a = false);
    copied |= !converted.is(array);
    array = converted;
  }
  if (copy.is_none()) return array;
  const bool wanted = nb::cast<bool>(copy);
  if (copied && !wanted) {
    throw nb::value_error("a Tensor cannot become this array without a copy: strings and other dtypes need one");
  }
  return wanted && !copied ? nb::object(array.attr("copy")()) : array;
}

// The elements that NumPy finds under this index, as a Tensor of the same dtype.
PyTensor Select(nb::handle self, nb::handle index) {
  const nb::object found = nb::steal(PyObject_GetItem(ToNumpy(self).ptr(), index.ptr()));
  if (!found.is_valid()) throw nb::python_error();
  const DType dtype = AsTensor(self)->view.dtype;
  PyTensor selected = Show(found, {.op = "Tensor", .name = "index", .literal = dtype});
  selected.view.dtype = dtype;  // NumPy's integers become a quantized type again
  return selected;
}

nb::tuple ShapeTuple(const Shape& shape) {
  nb::list dims;
  for (const int64_t dim : shape.dims()) dims.append(dim);
  return nb::tuple(dims);
}

template <class... Flags>
nb::object DlpackExporter(const TensorView& view, nb::dlpack::dtype dtype, nb::handle owner) {
  const std::vector<size_t> dims(view.shape.dims().begin(), view.shape.dims().end());
  nb::ndarray<nb::array_api, Flags...> array(const_cast<void*>(view.data), dims.size(), dims.data(), owner, nullptr,
                                             dtype, static_cast<int>(view.device.kind), view.device.number);
  return nb::borrow(array.cast());
}

// Makes a consumer's stream wait until the tensor is ready. The stream is DLPack's: None means the default one, -1 that
// no order is wanted.
void OrderForConsumer(const PyTensor& tensor, nb::handle stream) {
  const int64_t later = stream.is_none() ? 0 : nb::cast<int64_t>(stream);
  if (later == -1) return;
  void* const earlier = tensor.keep.source() ? tensor.keep.source()->stream : nullptr;
  OrderStreams(tensor.view.device, earlier, reinterpret_cast<void*>(later));
}

nb::object Dlpack(nb::handle self, nb::handle stream, nb::handle max_version, nb::handle dl_device, nb::handle copy) {
  const PyTensor& tensor = *AsTensor(self);
  const std::optional<nb::dlpack::dtype> dtype = DlpackOf(tensor.view.dtype);
  if (!dtype)
    throw nb::buffer_error((std::string(DTypeName(tensor.view.dtype)) + " cannot be shared by DLPack").c_str());
  if (tensor.view.device.is_cuda()) {
    OrderForConsumer(tensor, stream);
    stream = nb::handle(Py_None);  // the exporter has none
  }
  const nb::object exporter =
      tensor.writable ? DlpackExporter<>(tensor.view, *dtype, self) : DlpackExporter<nb::ro>(tensor.view, *dtype, self);
  return exporter.attr("__dlpack__")("stream"_a = stream, "max_version"_a = max_version, "dl_device"_a = dl_device,
                                     "copy"_a = copy);
}

std::string DeviceName(Device device) { return device.is_cpu() ? "cpu" : "cuda:" + std::to_string(device.number); }

std::string Repr(nb::handle self) {
  const PyTensor& tensor = *AsTensor(self);
  if (!tensor.view.device.is_cpu()) {
    return "Tensor(<on " + DeviceName(tensor.view.device) + ">, dtype='" + std::string(DTypeName(tensor.view.dtype)) +
           "', shape=" + nb::repr(ShapeTuple(tensor.view.shape)).c_str() + ")";
  }
  const nb::object text = nb::module_::import_("numpy").attr("array2string")(
      ToNumpy(self), "separator"_a = ", ", "prefix"_a = "Tensor(", "threshold"_a = 20);
  return "Tensor(" + nb::cast<std::string>(text) + ", dtype='" + std::string(DTypeName(tensor.view.dtype)) +
         "', shape=" + nb::repr(ShapeTuple(tensor.view.shape)).c_str() + ")";
}

}  // namespace

const PyTensor* AsTensor(nb::handle object) {
  return PyObject_TypeCheck(object.ptr(), tensor_type) ? nb::inst_ptr<PyTensor>(object) : nullptr;
}

nb::object WrapTensor(Tensor tensor, const std::optional<DeviceSource>& source) {
  PyTensor wrapped;
  if (source) wrapped.keep.Use(*source);
  wrapped.view = tensor.view();
  wrapped.owned = std::move(tensor);
  return nb::cast(std::move(wrapped));
}

nb::object WrapTensor(const TensorView& view, nb::handle owner, const std::optional<DeviceSource>& source) {
  PyTensor wrapped;
  if (source) wrapped.keep.Use(*source);
  wrapped.view = view;
  wrapped.keep.Add(nb::borrow(owner));
  return nb::cast(std::move(wrapped));
}

void DefineTensor(nb::module_& module) {
  nb::class_<PyTensor> tensor(module, "Tensor", R"(An array of any TensorFlow dtype, also those that NumPy lacks.

Tensor(data, dtype=None) shares the memory of an array (NumPy, torch, JAX, ...) where it can; lists are copied.
dtype is TensorFlow's name: "float32", "bfloat16", "string", "qint8", ... Arrays keep the dtype they have; integers can be
declared quantized: Tensor(np.int8([1, 2]), "qint8").

Indices and slices are NumPy's and give a Tensor, also of shape (). Contiguous ones share the memory; others are copied.

>>> import raggrad
>>> tensor = raggrad.Tensor([1, 2, 3], "qint8")
>>> tensor
Tensor([1, 2, 3], dtype='qint8', shape=(3,))
>>> tensor[1:], tensor[0].tolist()
(Tensor([2, 3], dtype='qint8', shape=(2,)), 1)
)",
                              nb::is_weak_referenceable());
  tensor_type = reinterpret_cast<PyTypeObject*>(tensor.ptr());
  tensor
      .def(
          "__init__", [](PyTensor* self, nb::handle data, nb::handle dtype) { new (self) PyTensor(Make(data, dtype)); },
          "data"_a.none(), "dtype"_a = nb::none(),
          nb::sig("def __init__(self, data: object, dtype: object | None = None) -> None"))
      .def_prop_ro(
          "dtype", [](const PyTensor& self) { return std::string(DTypeName(self.view.dtype)); },
          "TensorFlow's name of the element type.")
      .def_prop_ro(
          "device", [](const PyTensor& self) { return DeviceName(self.view.device); }, "\"cpu\", or \"cuda:0\".")
      .def_prop_ro(
          "shape", [](const PyTensor& self) { return ShapeTuple(self.view.shape); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def(
          "numpy", [](nb::handle_t<PyTensor> self) { return ToNumpy(self); },
          nb::sig("def numpy(self) -> numpy.ndarray[typing.Any, typing.Any]"),
          "The elements as a NumPy array, without a copy; quantized types are integers. Strings are copied into an "
          "object array of bytes.")
      .def(
          "tolist", [](nb::handle_t<PyTensor> self) { return ToNumpy(self).attr("tolist")(); },
          nb::sig("def tolist(self) -> typing.Any"),
          "Nested lists of Python numbers or bytes; a single one for shape ().")
      .def(
          "__getitem__", [](nb::handle_t<PyTensor> self, nb::handle index) { return Select(self, index); },
          "index"_a.none(), nb::sig("def __getitem__(self, index: object) -> Tensor"))
      .def(
          "__array__",
          [](nb::handle_t<PyTensor> self, nb::handle dtype, nb::handle copy) { return ToArray(self, dtype, copy); },
          "dtype"_a = nb::none(), "copy"_a = nb::none(),
          nb::sig("def __array__(self, dtype: object = None, copy: bool | None = None) -> "
                  "numpy.ndarray[typing.Any, typing.Any]"))
      .def(
          "__dlpack__",
          [](nb::handle_t<PyTensor> self, nb::handle stream, nb::handle max_version, nb::handle dl_device,
             nb::handle copy) { return Dlpack(self, stream, max_version, dl_device, copy); },
          nb::kw_only(), "stream"_a = nb::none(), "max_version"_a = nb::none(), "dl_device"_a = nb::none(),
          "copy"_a = nb::none(),
          nb::sig("def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, "
                  "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> typing.Any"))
      .def(
          "__dlpack_device__",
          [](const PyTensor& self) {
            return nb::make_tuple(static_cast<int>(self.view.device.kind), self.view.device.number);
          },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("__len__",
           [](const PyTensor& self) {
             if (self.view.rank() == 0) throw nb::type_error("a Tensor of shape () has no length");
             return self.view.dim(0);
           })
      .def("__reduce__",
           [](nb::handle_t<PyTensor> self) {
             const std::string dtype(DTypeName(AsTensor(self)->view.dtype));
             return nb::make_tuple(nb::handle(Py_TYPE(self.ptr())), nb::make_tuple(ToNumpy(self), dtype));
           })
      .def("__repr__", [](nb::handle_t<PyTensor> self) { return Repr(self); });
  module.def(
      "tensor_of",
      [](nb::handle data, const std::string& op, const std::string& name, nb::handle literals) {
        return Show(data, {.op = op, .name = name, .literal = ParseDType(literals, op, name)});
      },
      "data"_a.none(), "op"_a, "name"_a, "literals"_a = nb::none(),
      "An argument as a Tensor, with errors that name it. Numbers and lists become `literals`; arrays stay what they "
      "are.");
}

}  // namespace raggrad::python
