// Device memory of frameworks: the stream their work is on, and memory for scratch and outputs.
#pragma once

#include <nanobind/nanobind.h>

#include "dlpack.h"
#include "raggrad/core/allocator.h"
#include "raggrad/core/tensor.h"

namespace raggrad::python {

namespace nb = nanobind;

// The kind of an array. Outputs have the kind of an input.
enum class Kind { kNumpy, kTorch, kJax, kTensorFlow, kCupy, kTensor, kArrayApi };

// The kind of a class of arrays, and its exchange functions if it has them.
struct ArrayType {
  Kind kind;
  const dlpack::ExchangeApi* exchange;
};

// Where a call works: the first operand in device memory decides.
struct DeviceSource {
  Kind kind;
  Device device;
  void* stream = nullptr;       // the framework's current one; null: the default stream
  Allocator* memory = nullptr;  // the framework's; null: the library's pool
};

// torch and CuPy have a current stream and an allocator. Arrays of others become ready on the default stream, and
// memory comes from the library's pool. Needs the GIL.
DeviceSource SourceOf(const ArrayType& type, Device device);

// The exchange functions of a class of arrays; null if it has none that this code understands.
const dlpack::ExchangeApi* ExchangeOf(nb::handle type);

// An output in device memory that came from a framework's allocator, as that framework's array; null if it came from
// the library's pool. Takes the memory over from `output`.
nb::object TakeOutput(Tensor& output, Kind& kind);

// An array of torch or CuPy without elements.
nb::object EmptyOutput(Kind kind, const TensorView& view);

// Makes later work on stream `later` wait for the work that is now on `earlier`.
void OrderStreams(Device device, void* earlier, void* later);

}  // namespace raggrad::python
