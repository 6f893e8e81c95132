// Device memory that other libraries made: which GPU has it, and when it is ready. For the library and the bindings.
#pragma once

#include <string_view>

#include "raggrad/core/device.h"
#include "raggrad/core/result.h"

#pragma GCC visibility push(default)
namespace raggrad {

// The GPU that an address belongs to. INVALID_ARGUMENT if it is no device memory.
Result<Device> DeviceOfMemory(std::string_view op, const void* data) noexcept;

// Makes later work on stream `later` wait for the work that is now on `earlier`. Nothing happens if they are the same.
Status OrderStreams(std::string_view op, Device device, void* earlier, void* later) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
