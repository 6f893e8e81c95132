#include "device.h"

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "dtypes.h"
#include "raggrad/cuda/foreign_memory.h"
#include "runtime.h"

namespace raggrad::python {
namespace {

constexpr int kCuda = nb::device::cuda::value;
constexpr size_t kMostDevices = 64;

// A framework's allocator. Hands out whole arrays of the framework, and remembers which one each address belongs to.
class FrameworkMemory : public Allocator {
 public:
  bool TakesFewerRows() const noexcept final { return true; }
  // The array at this address as a Python object, which owns it from now on; null if it is not from here. It may have
  // been made with more rows than the output has.
  virtual nb::object TakeObject(const TensorView& output) = 0;
  virtual nb::object Empty(const TensorView& view) = 0;
};

// Memory from a framework's exchange functions, without the GIL.
class ExchangedMemory final : public FrameworkMemory {
 public:
  ExchangedMemory(const dlpack::ExchangeApi& api, int32_t device) noexcept : api_(api), device_(device) {}

  void* Allocate(size_t bytes) noexcept override {
    int64_t size = static_cast<int64_t>(bytes);
    return Keep(Make(*DlpackOf(DType::kUInt8), {&size, 1}));
  }
  void* AllocateOutput(const OutputSpec& spec) noexcept override {
    const std::optional<nb::dlpack::dtype> dtype = DlpackOf(spec.dtype);
    return dtype ? Keep(Make(*dtype, spec.shape.dims())) : nullptr;
  }
  void Deallocate(void* data, size_t) noexcept override {
    // Null after TakeObject failed: the framework then has the array.
    if (dlpack::OwnedArray* const array = Take(data); array != nullptr) array->deleter(array);
  }
  nb::object TakeObject(const TensorView& output) override {
    dlpack::OwnedArray* const array = Take(const_cast<void*>(output.data));
    if (array == nullptr) return {};
    const bool whole = array->array.rank == 0 || array->array.shape[0] == output.dim(0);
    return ToObject(whole ? array : FirstRows(array, output.shape));
  }
  nb::object Empty(const TensorView& view) override {
    const std::optional<nb::dlpack::dtype> dtype = DlpackOf(view.dtype);
    dlpack::OwnedArray* const array = dtype ? Make(*dtype, view.shape.dims()) : nullptr;
    if (array == nullptr) RaiseInvalid("an output of dtype ", view.dtype, " cannot be shared by DLPack");
    return ToObject(array);
  }

 private:
  dlpack::OwnedArray* Make(nb::dlpack::dtype dtype, std::span<const int64_t> shape) const noexcept {
    dlpack::Array prototype = {};
    prototype.device = {kCuda, device_};
    prototype.rank = static_cast<int32_t>(shape.size());
    prototype.dtype = dtype;
    prototype.shape = const_cast<int64_t*>(shape.data());
    dlpack::OwnedArray* array = nullptr;
    const auto ignore = [](void*, const char*, const char*) {};  // no memory is the only reason
    return api_.allocate(&prototype, &array, nullptr, ignore) == 0 ? array : nullptr;
  }
  void* Keep(dlpack::OwnedArray* array) noexcept {
    if (array == nullptr) return nullptr;
    try {
      const std::lock_guard lock(mutex_);
      arrays_.emplace(array->array.begin(), array);
      return array->array.begin();
    } catch (const std::bad_alloc&) {
      array->deleter(array);
      return nullptr;
    }
  }
  // The first rows of an array, which they keep alive.
  static dlpack::OwnedArray* FirstRows(dlpack::OwnedArray* whole, const Shape& shape) {
    struct Rows {
      dlpack::OwnedArray array;
      dlpack::OwnedArray* whole;
      std::vector<int64_t> shape, strides;
    };
    const std::span<const int64_t> dims = shape.dims();
    auto* const rows = new Rows{*whole, whole, {dims.begin(), dims.end()}, std::vector<int64_t>(dims.size(), 1)};
    for (size_t i = dims.size() - 1; i > 0; --i) rows->strides[i - 1] = rows->strides[i] * dims[i];
    rows->array.context = rows;
    rows->array.deleter = [](dlpack::OwnedArray* array) {
      auto* const self = static_cast<Rows*>(array->context);
      self->whole->deleter(self->whole);
      delete self;
    };
    rows->array.array.shape = rows->shape.data();
    rows->array.array.strides = rows->strides.data();
    return &rows->array;
  }
  dlpack::OwnedArray* Take(void* data) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = arrays_.find(data);
    if (found == arrays_.end()) return nullptr;
    dlpack::OwnedArray* const array = found->second;
    arrays_.erase(found);
    return array;
  }
  nb::object ToObject(dlpack::OwnedArray* array) const {
    PyObject* object = nullptr;
    if (api_.object_from_owned(array, &object) != 0) throw nb::python_error();
    return nb::steal(object);
  }

  const dlpack::ExchangeApi& api_;
  const int32_t device_;
  std::mutex mutex_;
  std::unordered_map<void*, dlpack::OwnedArray*> arrays_;
};

// Memory from functions of raggrad._device, with the GIL: 1 to 3 microseconds a block.
class PythonMemory final : public FrameworkMemory {
 public:
  PythonMemory(const char* make, int32_t device) noexcept : make_(make), device_(device) {}

  void* Allocate(size_t bytes) noexcept override {
    const int64_t size = static_cast<int64_t>(bytes);
    return Keep(DType::kUInt8, {&size, 1});
  }
  void* AllocateOutput(const OutputSpec& spec) noexcept override { return Keep(spec.dtype, spec.shape.dims()); }
  void Deallocate(void* data, size_t) noexcept override {
    const nb::gil_scoped_acquire gil;
    arrays_.erase(data);
  }
  nb::object TakeObject(const TensorView& output) override {
    const auto found = arrays_.find(const_cast<void*>(output.data));
    if (found == arrays_.end()) return {};
    nb::object array = std::move(arrays_.extract(found).mapped());
    if (output.rank() == 0 || nb::len(array) == static_cast<size_t>(output.dim(0))) return array;
    return nb::borrow(array[nb::slice(static_cast<Py_ssize_t>(output.dim(0)))]);
  }
  nb::object Empty(const TensorView& view) override { return Make(view.dtype, view.shape.dims())[0]; }

 private:
  nb::tuple Make(DType dtype, std::span<const int64_t> shape) const {
    const std::string_view name = DTypeName(StorageOf(dtype));
    nb::list dims;
    for (const int64_t dim : shape) dims.append(dim);
    return nb::borrow<nb::tuple>(nb::module_::import_("raggrad._device")
                                     .attr(make_)(nb::tuple(dims), nb::str(name.data(), name.size()), device_));
  }
  void* Keep(DType dtype, std::span<const int64_t> shape) noexcept {
    const nb::gil_scoped_acquire gil;
    try {
      const nb::tuple made = Make(dtype, shape);
      void* const data = reinterpret_cast<void*>(nb::cast<uintptr_t>(made[1]));
      arrays_.emplace(data, made[0]);
      return data;
    } catch (...) {  // the framework has no memory
      return nullptr;
    }
  }

  const char* const make_;
  const int32_t device_;
  std::unordered_map<void*, nb::object> arrays_;  // the GIL guards it
};

// The memories of one framework, made on first use and never destroyed: plans keep memory as long as they live. The GIL
// guards them.
using Memories = std::array<FrameworkMemory*, kMostDevices>;
Memories torch_memories{}, cupy_memories{};

// Where the memory of a framework's arrays on a device is kept; null if there is no place for it.
FrameworkMemory** PlaceOf(Kind kind, Device device) {
  const auto number = static_cast<size_t>(device.number);
  if ((kind != Kind::kTorch && kind != Kind::kCupy) || number >= kMostDevices) return nullptr;
  return &(kind == Kind::kTorch ? torch_memories : cupy_memories)[number];
}

// The memory of a framework that has been used on the device before; null if there is none.
FrameworkMemory* KnownMemory(Kind kind, Device device) {
  FrameworkMemory* const* const place = PlaceOf(kind, device);
  return place == nullptr ? nullptr : *place;
}

FrameworkMemory* MemoryOf(const ArrayType& type, Device device) {
  FrameworkMemory** const place = PlaceOf(type.kind, device);
  if (place == nullptr || *place != nullptr) return KnownMemory(type.kind, device);
  if (type.exchange != nullptr) {
    *place = new ExchangedMemory(*type.exchange, device.number);
  } else {
    *place = new PythonMemory(type.kind == Kind::kTorch ? "torch_empty" : "cupy_empty", device.number);
  }
  return *place;
}

void* StreamOf(const ArrayType& type, Device device) {
  void* stream = nullptr;
  if (type.exchange != nullptr) {
    if (type.exchange->current_stream(kCuda, device.number, &stream) != 0) throw nb::python_error();
    return stream;
  }
  if (type.kind != Kind::kTorch && type.kind != Kind::kCupy) return nullptr;
  static PyObject* torch_stream = nullptr;
  static PyObject* cupy_stream = nullptr;
  const nb::handle current = type.kind == Kind::kTorch ? ImportOnce(torch_stream, "raggrad._device", "torch_stream")
                                                       : ImportOnce(cupy_stream, "raggrad._device", "cupy_stream");
  return reinterpret_cast<void*>(nb::cast<uintptr_t>(current(device.number)));
}

}  // namespace

DeviceSource SourceOf(const ArrayType& type, Device device) {
  return {type.kind, device, StreamOf(type, device), MemoryOf(type, device)};
}

const dlpack::ExchangeApi* ExchangeOf(nb::handle type) {
  const nb::object capsule = nb::getattr(type, dlpack::ExchangeApi::kAttribute, nb::none());
  if (!PyCapsule_IsValid(capsule.ptr(), dlpack::ExchangeApi::kCapsule)) return nullptr;
  const auto* api =
      static_cast<const dlpack::ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), dlpack::ExchangeApi::kCapsule));
  while (api != nullptr && api->version.major > 1) api = api->older;
  return api != nullptr && api->version.major == 1 && api->array_from_object != nullptr ? api : nullptr;
}

nb::object TakeOutput(Tensor& output, Kind& kind) {
  for (const Kind owner : {Kind::kTorch, Kind::kCupy}) {
    FrameworkMemory* const memory = KnownMemory(owner, output.view().device);
    if (memory == nullptr) continue;
    nb::object object = memory->TakeObject(output.view());
    if (!object.is_valid()) continue;
    [[maybe_unused]] void* const taken = output.release();
    kind = owner;
    return object;
  }
  return {};
}

nb::object EmptyOutput(Kind kind, const TensorView& view) {
  FrameworkMemory* const memory = KnownMemory(kind, view.device);
  return memory == nullptr ? nb::object() : memory->Empty(view);
}

void OrderStreams(Device device, void* earlier, void* later) {
  if (const Status s = raggrad::OrderStreams("__dlpack__", device, earlier, later); !s.ok()) Raise(s);
}

}  // namespace raggrad::python
