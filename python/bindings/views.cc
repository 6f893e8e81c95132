#include "views.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "dtypes.h"
#include "foreign.h"
#include "numpy_api.h"
#include "runtime.h"
#include "tensor.h"

namespace raggrad::python {
namespace {

PyArrayObject* AsArray(nb::handle object) { return reinterpret_cast<PyArrayObject*>(object.ptr()); }

// The characters of one element of an object array. Text counts as UTF-8.
String StringOfObject(PyObject* item, size_t position, const Argument& argument) {
  Py_ssize_t size = 0;
  if (PyBytes_Check(item)) {
    char* data = nullptr;
    PyBytes_AsStringAndSize(item, &data, &size);
    return {data, static_cast<size_t>(size)};
  }
  if (PyUnicode_Check(item)) {
    const char* data = PyUnicode_AsUTF8AndSize(item, &size);
    if (data == nullptr) throw nb::python_error();
    return {data, static_cast<size_t>(size)};
  }
  RaiseInvalid(argument.op, ": ", argument.Name(), ": an array of objects must hold bytes. [element ", position,
               ": expected bytes, got ", TypeName(item), "]");
}

TensorView ViewOfObjects(PyArrayObject* array, const Argument& argument, KeepAlive& keep) {
  // A copy of the references: another thread may write to the array while the operator reads the characters.
  nb::object copy = nb::steal(PyArray_NewCopy(array, NPY_CORDER));
  if (!copy.is_valid()) throw nb::python_error();
  PyObject* const* items = static_cast<PyObject**>(PyArray_DATA(AsArray(copy)));
  const size_t count = static_cast<size_t>(PyArray_SIZE(array));
  String* strings = keep.AddStrings(count);
  for (size_t i = 0; i < count; ++i) strings[i] = StringOfObject(items[i], i, argument);
  keep.Add(std::move(copy));
  return TensorView::Of(strings, ShapeOf(array));
}

// Views NumPy's fixed-width strings. Zeros at their end do not count.
TensorView ViewOfFixedStrings(PyArrayObject* array, KeepAlive& keep) {
  const size_t width = static_cast<size_t>(PyArray_ITEMSIZE(array));
  const size_t count = static_cast<size_t>(PyArray_SIZE(array));
  const char* data = static_cast<const char*>(PyArray_DATA(array));
  String* strings = keep.AddStrings(count);
  for (size_t i = 0; i < count; ++i) {
    const std::string_view all(data + i * width, width);
    strings[i] = {all.data(), all.find_last_not_of('\0') + 1};
  }
  return TensorView::Of(strings, ShapeOf(array));
}

TensorView ViewOfArray(PyArrayObject* array, const Argument& argument, KeepAlive& keep) {
  PyArray_Descr* descr = PyArray_DESCR(array);
  const DType dtype = DTypeOfDescr(descr);
  if (dtype == DType::kInvalid) {
    RaiseInvalid(argument.op, ": ", argument.Name(), " is a NumPy array of dtype ",
                 nb::str(nb::handle(reinterpret_cast<PyObject*>(descr))).c_str(),
                 ", which is not a TensorFlow dtype. Strings are arrays of bytes objects.");
  }
  if (descr->type_num == NPY_OBJECT) return ViewOfObjects(array, argument, keep);
  nb::object owner = nb::borrow(reinterpret_cast<PyObject*>(array));
  if (!PyArray_ISCARRAY_RO(array)) {
    PyArray_Descr* native = PyArray_DescrNewByteorder(descr, NPY_NATIVE);
    if (native == nullptr) throw nb::python_error();
    owner = nb::steal(PyArray_FromArray(array, native, NPY_ARRAY_CARRAY_RO));
    if (!owner.is_valid()) throw nb::python_error();
    array = AsArray(owner);
  }
  keep.Add(std::move(owner));
  if (dtype == DType::kString) return ViewOfFixedStrings(array, keep);
  return {PyArray_DATA(array), dtype, ShapeOf(array), {}};
}

// Where a NumPy scalar has its number, which never changes. Null if the type is none of these: they are the ones in
// which ids, sizes and values come alone.
struct ScalarType {
  const PyTypeObject* type;
  DType dtype;
  size_t offset;
};

const ScalarType* FindScalarType(const PyTypeObject* type) {
  static const ScalarType types[] = {
      {&PyInt64ArrType_Type, DType::kInt64, offsetof(PyInt64ScalarObject, obval)},
      {&PyInt32ArrType_Type, DType::kInt32, offsetof(PyInt32ScalarObject, obval)},
      {&PyFloat32ArrType_Type, DType::kFloat32, offsetof(PyFloat32ScalarObject, obval)},
      {&PyFloat64ArrType_Type, DType::kFloat64, offsetof(PyFloat64ScalarObject, obval)},
  };
  for (const ScalarType& known : types) {
    if (known.type == type) return &known;
  }
  return nullptr;
}

// Views a Python int as an index, the most common literal. A large one is int64 if nobody asks for int32.
TensorView ViewOfInteger(nb::handle object, DType dtype, const Argument& argument, KeepAlive& keep) {
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  const bool large = overflow != 0 || value != static_cast<int32_t>(value);
  if (large && argument.LiteralDType() == DType::kInvalid) dtype = DType::kInt64;
  const bool narrow = dtype == DType::kInt32;
  if (overflow != 0 || (narrow && large)) {
    RaiseInvalid(argument.op, ": ", argument.Name(), ": ", nb::str(object).c_str(), " does not fit ", dtype);
  }
  int64_t* number = keep.AddNumber();
  const auto low = static_cast<int32_t>(value);
  narrow ? std::memcpy(number, &low, sizeof(low)) : std::memcpy(number, &value, sizeof(value));
  return {number, dtype, Shape{}, {}};
}

TensorView ViewOfLiteral(nb::handle object, const Argument& argument, KeepAlive& keep) {
  const auto name = [](DType dtype) {
    const std::string_view text = dtype == DType::kInvalid ? "" : DTypeName(dtype);
    return nb::str(text.data(), text.size());
  };
  const DType wanted = argument.LiteralDType();
  const std::string what = std::string(argument.op) + ": " + argument.Name();
  const nb::object array = nb::module_::import_("raggrad._literals")
                               .attr("array")(object, name(StorageOf(wanted)), name(argument.integers), what.c_str());
  TensorView view = ViewOfArray(AsArray(array), argument, keep);
  if (view.dtype == StorageOf(wanted)) view.dtype = wanted;
  return view;
}

nb::object NumpyFrom(nb::handle object) {
  nb::object array = nb::steal(PyArray_FromAny(object.ptr(), nullptr, 0, 0, 0, nullptr));
  if (!array.is_valid()) throw nb::python_error();
  return array;
}

// Frameworks record operations on some of their arrays, to run them backwards, but not the operators here. So this
// warns, once per argument, that no gradient will come.
void WarnIfRecorded(nb::handle object, Kind kind, const Argument& argument) {
  if (argument.detached || (kind != Kind::kTorch && kind != Kind::kTensorFlow)) return;
  if (kind == Kind::kTorch && !nb::cast<bool>(object.attr("requires_grad"))) return;
  static PyObject* warn = nullptr;
  const std::string op(argument.op);
  ImportOnce(warn, "raggrad._recorded", "warn_if_recorded")(object, op.c_str(), argument.Name().c_str());
}

TensorView ViewOfOther(nb::handle object, const Argument& argument, KeepAlive& keep) {
  if (PyArray_IsScalar(object.ptr(), Generic)) return ViewOfArray(AsArray(NumpyFrom(object)), argument, keep);
  if (IsLiteral(object)) return ViewOfLiteral(object, argument, keep);
  const ArrayType type = TypeOf(object);
  WarnIfRecorded(object, type.kind, argument);
  if (type.kind == Kind::kTensorFlow) return ViewOfTensorFlow(object, type, argument, keep);
  if (type.exchange != nullptr || nb::hasattr(object, "__dlpack__")) {
    return ViewOfDlpack(object, type, argument, keep);
  }
  if (nb::hasattr(object, "__cuda_array_interface__")) return ViewOfCudaArray(object, argument, keep);
  if (nb::hasattr(object, "__array__")) {
    nb::object array;
    try {
      array = NumpyFrom(object);
    } catch (const nb::python_error& error) {
      RaiseRefused(error, object, argument);
    }
    return ViewOfArray(AsArray(array), argument, keep);
  }
  RaiseInvalid(argument.op, ": ", argument.Name(),
               ": expected an array (NumPy, torch, JAX, TensorFlow, CuPy, or anything with "
               "__dlpack__), a raggrad.Tensor, a number or a list, got ",
               TypeName(object));
}

Kind FindKind(nb::handle type) {
  for (const nb::handle base : nb::borrow<nb::tuple>(type.attr("__mro__"))) {  // a user's classes, too
    const nb::object module = nb::getattr(base, "__module__", nb::none());
    const std::string name = nb::isinstance<nb::str>(module) ? nb::borrow<nb::str>(module).c_str() : "";
    const std::string package = name.substr(0, name.find('.'));
    if (package == "torch") return Kind::kTorch;
    if (package == "jax" || package == "jaxlib") return Kind::kJax;
    if (package == "tensorflow") return Kind::kTensorFlow;
    if (package == "cupy") return Kind::kCupy;
  }
  return nb::hasattr(type, "__array_namespace__") ? Kind::kArrayApi : Kind::kNumpy;
}

// A cache of the last types of arrays. It keeps no type alive. If a new type gets the address of one that is gone,
// the weak reference tells. The GIL guards the cache.
class KnownTypes {
 public:
  ArrayType Of(nb::handle type) {
    for (const Entry& entry : entries_) {
      if (entry.type == type.ptr() && entry.reference().is(type)) return entry.found;
    }
    const ArrayType found = {FindKind(type), ExchangeOf(type)};
    static PyObject* weak_reference = nullptr;
    entries_[next_] = {type.ptr(), nb::borrow(ImportOnce(weak_reference, "weakref", "ref")(type)), found};
    next_ = (next_ + 1) % kEntries;
    return found;
  }

 private:
  static constexpr size_t kEntries = 16;  // more than the types of arrays in most programs
  struct Entry {
    PyObject* type = nullptr;
    nb::object reference = {};
    ArrayType found = {};
  };
  Entry entries_[kEntries];
  size_t next_ = 0;
};

size_t CountOf(const TensorView& view) { return static_cast<size_t>(view.shape.NumElements().value_or(0)); }

template <class To, class From>
TensorView Converted(const TensorView& view, KeepAlive& keep) {
  const size_t count = CountOf(view);
  auto* const copy = reinterpret_cast<To*>(keep.AddBytes(count * sizeof(To)));
  std::transform(view.As<From>(), view.As<From>() + count, copy, [](From id) { return static_cast<To>(id); });
  return {copy, kDTypeOf<To>, view.shape, view.device};
}

bool FitInt32(const TensorView& ids) {
  const int64_t* const first = ids.As<int64_t>();
  return std::all_of(first, first + CountOf(ids), [](int64_t id) { return id == static_cast<int32_t>(id); });
}

void CheckFitInt64(const TensorView& ids, const Argument& argument) {
  const uint64_t* const first = ids.As<uint64_t>();
  const uint64_t* const end = first + CountOf(ids);
  const uint64_t* const bad = std::find_if(first, end, [](uint64_t id) { return id > INT64_MAX; });
  if (bad == end) return;
  RaiseInvalid(argument.op, ": ", argument.Name(), ": an id does not fit int64 [position ", bad - first,
               ": expected at most ", INT64_MAX, ", got ", *bad, "]");
}

}  // namespace

bool IsLiteral(nb::handle object) {
  PyObject* o = object.ptr();
  if (PyArray_CheckExact(o)) return false;
  if (PyArray_IsScalar(o, Generic)) return false;  // some are also Python numbers, but keep their dtype as arrays do
  return PyLong_Check(o) || PyFloat_Check(o) || PyComplex_Check(o) || PyBytes_Check(o) || PyUnicode_Check(o) ||
         PyList_Check(o) || PyTuple_Check(o) || PyObject_TypeCheck(o, &PyRange_Type);
}

std::string TypeName(nb::handle object) { return nb::str(nb::handle(Py_TYPE(object.ptr())).attr("__name__")).c_str(); }

std::string Argument::Name() const {
  const auto item = [](int64_t i) { return std::string("[") + std::to_string(i) + "]"; };
  if (element < 0) return std::string(name) + (level < 0 ? "" : item(level));
  return std::string(name) + item(element) + (level < 0 ? ".values" : ".nested_splits" + item(level));
}

ArrayType TypeOf(nb::handle object) {
  if (PyArray_Check(object.ptr()) || PyArray_IsScalar(object.ptr(), Generic)) return {Kind::kNumpy, nullptr};
  if (AsTensor(object) != nullptr) return {Kind::kTensor, nullptr};
  static auto* const known = new KnownTypes;
  return known->Of(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()))));
}

TensorView ViewOfAny(nb::handle object, const Argument& argument, KeepAlive& keep) {
  if (PyArray_CheckExact(object.ptr())) return ViewOfArray(AsArray(object), argument, keep);
  if (PyLong_CheckExact(object.ptr())) {
    const DType wanted = argument.LiteralDType() == DType::kInvalid ? argument.integers : argument.LiteralDType();
    if (Contains(IndexTypes{}, wanted)) return ViewOfInteger(object, wanted, argument, keep);
  }
  // A raggrad.Tensor may be written to, so it needs a copy of the number.
  const ScalarType* const scalar = argument.detached ? nullptr : FindScalarType(Py_TYPE(object.ptr()));
  if (scalar != nullptr) {
    keep.Add(nb::borrow(object));
    return {reinterpret_cast<const std::byte*>(object.ptr()) + scalar->offset, scalar->dtype, Shape{}, {}};
  }
  if (const PyTensor* tensor = AsTensor(object)) {
    keep.Add(nb::borrow(object));
    if (tensor->keep.source()) keep.Use(*tensor->keep.source());
    return tensor->view;
  }
  if (PyArray_Check(object.ptr())) {
    if (nb::isinstance(object, nb::module_::import_("numpy.ma").attr("MaskedArray"))) {
      RaiseInvalid(argument.op, ": ", argument.Name(), ": masked arrays are not taken; fill the masked places first");
    }
    return ViewOfArray(AsArray(object), argument, keep);
  }
  return ViewOfOther(object, argument, keep);
}

TensorView ViewOf(nb::handle object, const Argument& argument, KeepAlive& keep) try {
  TensorView view = ViewOfAny(object, argument, keep);
  if (argument.stated != DType::kInvalid && view.dtype != argument.stated) {
    RaiseInvalid(argument.op, ": ", argument.attribute, " says ", argument.stated, " but ", argument.Name(),
                 " has dtype ", view.dtype);
  }
  return view;
} catch (const std::bad_alloc&) {
  Raise(MakeError(Code::kResourceExhausted, argument.op, ": no memory for a copy of ", argument.Name()));
}

// Ids in device memory, in int32 or int64. The framework converts other integers. Its conversion wraps uint64 beyond 63
// bits around, and operators then report negative ids.
TensorView DeviceIdsOf(nb::handle object, const TensorView& view, const Argument& argument, KeepAlive& keep) {
  const bool small = Contains(TypeList<int8_t, int16_t, uint8_t, uint16_t>{}, view.dtype);
  if (!small && view.dtype != DType::kUInt32 && view.dtype != DType::kUInt64) return view;
  static PyObject* converted = nullptr;
  const nb::handle convert = ImportOnce(converted, "raggrad._device", "converted");
  return ViewOf(convert(object, small ? "int32" : "int64"), argument, keep);
}

TensorView IdsOf(nb::handle object, const Argument& argument, KeepAlive& keep) {
  const bool literal = IsLiteral(object);
  Argument ids = argument;
  if (literal) ids.literal = DType::kInt64;
  TensorView view = ViewOf(object, ids, keep);
  if (view.device.is_cuda()) return DeviceIdsOf(object, view, ids, keep);
  switch (view.dtype) {
    case DType::kInt8:
      return Converted<int32_t, int8_t>(view, keep);
    case DType::kInt16:
      return Converted<int32_t, int16_t>(view, keep);
    case DType::kUInt8:
      return Converted<int32_t, uint8_t>(view, keep);
    case DType::kUInt16:
      return Converted<int32_t, uint16_t>(view, keep);
    case DType::kUInt32:
      return Converted<int64_t, uint32_t>(view, keep);
    case DType::kUInt64:
      CheckFitInt64(view, argument);
      return Converted<int64_t, uint64_t>(view, keep);
    case DType::kInt64:
      return literal && FitInt32(view) ? Converted<int32_t, int64_t>(view, keep) : view;
    default:
      return view;
  }
}

}  // namespace raggrad::python
