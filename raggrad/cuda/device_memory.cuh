// Device memory of the library's own. Internal to the CUDA library.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "raggrad/core/result.h"

namespace raggrad::cuda {

// A memory pool of one device, beside the device's default pool, which belongs to the host program. What was freed is
// kept for the next call: given back to the system at every synchronisation it would cost more than most kernels.
// Where a device has no pools, memory comes from cudaMalloc, and giving it back waits for the stream.
class DeviceMemory {
 public:
  enum class Pooled { kIfSupported, kNever };

  // Made when first asked for, never destroyed.
  static Result<DeviceMemory*> Of(int device) noexcept;

  static Result<DeviceMemory> Make(int device, Pooled pooled) noexcept;
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  ~DeviceMemory();

  int device() const noexcept { return device_; }
  bool pooled() const noexcept { return pool_ != nullptr; }

  // In the order of a stream of the device. Null if there is no memory.
  void* Allocate(size_t bytes, cudaStream_t stream) noexcept;
  void Free(void* memory, cudaStream_t stream) noexcept;

 private:
  DeviceMemory(int device, cudaMemPool_t pool) noexcept : device_(device), pool_(pool) {}

  int device_;
  cudaMemPool_t pool_;  // null: the device has none
};

}  // namespace raggrad::cuda
