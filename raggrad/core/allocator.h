// Where all memory of a call comes from: scratch and outputs.
#pragma once

#include <cstddef>

#include "raggrad/core/dtype.h"
#include "raggrad/core/shape.h"

#pragma GCC visibility push(default)
namespace raggrad {

// What an operator knows about an output when it asks for its memory.
struct OutputSpec {
  int index;  // position in the operator's list of outputs
  DType dtype;
  const Shape& shape;
  size_t bytes;  // what must be there: elements and, for strings, their characters
};

class Allocator {
 public:
  static constexpr size_t kAlignment = 64;

  virtual ~Allocator() = default;

  // At least `bytes` bytes (bytes > 0) aligned to kAlignment, or null if there are none. Called from the thread that
  // called the operator.
  virtual void* Allocate(size_t bytes) noexcept = 0;
  virtual void Deallocate(void* pointer, size_t bytes) noexcept = 0;

  // Override to place outputs in a framework's own tensors. The Tensor that results gives the memory back to
  // Deallocate, unless it is released.
  virtual void* AllocateOutput(const OutputSpec& spec) noexcept { return Allocate(spec.bytes); }
};

// The C library's heap. Refuses what would not fit in memory together with what was granted before, in the machine or
// in the limits of the process's container: Linux would grant it and kill the process when it is used. Requests of up
// to 2 KiB are never refused for that. Never destroyed.
Allocator& DefaultAllocator() noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
