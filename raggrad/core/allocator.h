// Allocator: a source of memory for scratch and outputs. A call has two: one of host memory, one of device memory.
#pragma once

#include <cstddef>

#include "raggrad/core/device.h"
#include "raggrad/core/dtype.h"
#include "raggrad/core/shape.h"

#pragma GCC visibility push(default)
namespace raggrad {

// Describes an output when an operator asks for its memory.
struct OutputSpec {
  int index;  // position in the operator's list of outputs
  DType dtype;
  const Shape& shape;
  size_t bytes;  // to allocate: the elements and, for strings, their characters
  Device device;
};

class Allocator {
 public:
  static constexpr size_t kAlignment = 64;

  virtual ~Allocator() = default;

  // Returns at least `bytes` bytes (bytes > 0) aligned to kAlignment, or null if there is no memory. Called on the
  // thread that called the operator. An allocator of device memory is called while the operands' GPU is the current
  // device, and its memory is used in the order of Context::stream.
  virtual void* Allocate(size_t bytes) noexcept = 0;
  virtual void Deallocate(void* pointer, size_t bytes) noexcept = 0;

  // Override to place outputs in a framework's own tensors. The Tensor that results gives the memory back to
  // Deallocate, unless it is released. An output without elements needs no memory: this is not called for it.
  virtual void* AllocateOutput(const OutputSpec& spec) noexcept { return Allocate(spec.bytes); }

  // Whether an output may turn out to have fewer rows than its spec said. On a GPU a call then asks for a small output
  // at once, for all rows that it could have, instead of waiting until they are counted.
  virtual bool TakesFewerRows() const noexcept { return false; }
};

// The C library's heap. Refuses a request that, together with all memory granted before, would exceed what the machine
// or the container has left: Linux would grant it and kill the process when the memory is used. Requests of up to 2 KiB
// are not checked. Never destroyed.
Allocator& DefaultAllocator() noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
