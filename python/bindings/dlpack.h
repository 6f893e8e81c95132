// The C structs of DLPack 1: arrays, and the functions by which frameworks exchange them without Python calls.
#pragma once

#include <nanobind/ndarray.h>

#include <cstdint>

namespace raggrad::python::dlpack {

namespace nb = nanobind;

struct Device {
  int32_t type;
  int32_t id;
};

struct Version {
  uint32_t major;
  uint32_t minor;
};

struct Array {
  void* data;
  Device device;
  int32_t rank;
  nb::dlpack::dtype dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major
  uint64_t byte_offset;

  void* begin() const noexcept { return static_cast<char*>(data) + byte_offset; }
};

// An array that owns its memory. deleter(this) gives it back, on any thread.
struct OwnedArray {
  Version version;
  void* context;
  void (*deleter)(OwnedArray*);
  uint64_t flags;
  Array array;
};

// A framework's table of functions: the capsule __dlpack_c_exchange_api__ of its array type. Functions return 0, or -1
// with a Python error; allocate() calls set_error instead and needs no GIL.
struct ExchangeApi {
  static constexpr char kAttribute[] = "__dlpack_c_exchange_api__";
  static constexpr char kCapsule[] = "dlpack_exchange_api";

  Version version;
  const ExchangeApi* older;
  int (*allocate)(const Array* prototype, OwnedArray** out, void* context,
                  void (*set_error)(void* context, const char* kind, const char* message));
  int (*owned_from_object)(PyObject* object, OwnedArray** out);
  int (*object_from_owned)(OwnedArray* array, PyObject** out);
  int (*array_from_object)(PyObject* object, Array* out);  // may be null; `out` is valid as long as the object
  int (*current_stream)(int32_t device_type, int32_t device_id, void** stream);
};

}  // namespace raggrad::python::dlpack
