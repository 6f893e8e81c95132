// The library's own pools of device memory. Internal to the CUDA library.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "raggrad/core/result.h"

namespace raggrad::cuda {

// A memory pool of one device. The device's default pool belongs to the host program and is left alone. Freed memory is
// kept for the next call: returning it to the driver at every synchronisation would cost more than most kernels. On
// devices without pools, memory comes from cudaMalloc, and Free() waits for the stream.
class DeviceMemory {
 public:
  enum class Pooled { kIfSupported, kNever };

  // The pool of a device, made at first use and never destroyed.
  static Result<DeviceMemory*> Of(int device) noexcept;

  static Result<DeviceMemory> Make(int device, Pooled pooled) noexcept;
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  ~DeviceMemory();

  int device() const noexcept { return device_; }
  bool pooled() const noexcept { return pool_ != nullptr; }

  // Both work in the order of a stream of the device. Allocate returns null if there is no memory.
  void* Allocate(size_t bytes, cudaStream_t stream) noexcept;
  void Free(void* memory, cudaStream_t stream) noexcept;

 private:
  DeviceMemory(int device, cudaMemPool_t pool) noexcept : device_(device), pool_(pool) {}

  int device_;
  cudaMemPool_t pool_;  // null if the device has none
};

}  // namespace raggrad::cuda
