// The interface of libraggrad_cuda.so beside the operators: version, start, device memory. Internal to the library.
#pragma once

#include <string_view>

#include "raggrad/core/context.h"
#include "raggrad/core/result.h"
#include "raggrad/core/status.h"

namespace raggrad::cuda {

struct Library {
  static constexpr char kSymbol[] = "raggrad_cuda_library";

  std::string_view version;
  // Must be called first. Fails if there is no GPU.
  Status (*start)() noexcept;
  // Makes a GPU the current device of the calling thread and returns the one before. INVALID_ARGUMENT if there is no
  // such GPU.
  Result<int> (*set_device)(int number) noexcept;
  // The GPU that an address belongs to. INVALID_ARGUMENT if it is no device memory.
  Result<Device> (*device_of)(const void* data) noexcept;
  // The pool of a stream of the current device.
  Result<Allocator*> (*pool)(void* stream) noexcept;
  // Copies bytes between memory of the host and of GPUs, in the order of the context's stream, and waits for the copy.
  Status (*copy)(void* to, const void* from, size_t bytes, const Context& ctx) noexcept;
};

}  // namespace raggrad::cuda
