#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "raggrad/cuda/current_device.cuh"
#include "raggrad/cuda/device_memory.cuh"
#include "raggrad/cuda/errors.cuh"

namespace raggrad::cuda {

Result<DeviceMemory*> DeviceMemory::Of(int device) noexcept {
  static std::mutex mutex;
  static auto& memories = *new std::map<int, DeviceMemory>;
  try {
    const std::lock_guard lock(mutex);
    if (const auto known = memories.find(device); known != memories.end()) return &known->second;
    Result<DeviceMemory> made = Make(device, Pooled::kIfSupported);
    if (!made.ok()) return made.status();
    return &memories.emplace(device, *std::move(made)).first->second;
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "no memory for a pool of device memory");
  }
}

Result<DeviceMemory> DeviceMemory::Make(int device, Pooled pooled) noexcept {
  int supported = 0;
  const cudaError_t asked = cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device);
  if (Status s = ToStatus(asked, "no device"); !s.ok()) return s;
  if (supported == 0 || pooled == Pooled::kNever) return DeviceMemory(device, nullptr);
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, device};
  cudaMemPool_t pool = nullptr;
  if (Status s = ToStatus(cudaMemPoolCreate(&pool, &properties), "no memory pool"); !s.ok()) return s;
  DeviceMemory memory(device, pool);
  uint64_t all = UINT64_MAX;  // keep all freed memory
  const cudaError_t kept = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all);
  if (Status s = ToStatus(kept, "no memory pool"); !s.ok()) return s;
  return Result<DeviceMemory>(std::move(memory));  // `return memory` would copy with nvcc 13.0
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : device_(other.device_), pool_(std::exchange(other.pool_, nullptr)) {}

DeviceMemory::~DeviceMemory() {
  if (pool_ != nullptr) Ignore(cudaMemPoolDestroy(pool_));
}

void* DeviceMemory::Allocate(size_t bytes, cudaStream_t stream) noexcept {
  const CurrentDevice device(device_);
  void* memory = nullptr;
  const cudaError_t error =
      pooled() ? cudaMallocFromPoolAsync(&memory, bytes, pool_, stream) : cudaMalloc(&memory, bytes);
  Ignore(error);
  return error == cudaSuccess ? memory : nullptr;
}

void DeviceMemory::Free(void* memory, cudaStream_t stream) noexcept {
  const CurrentDevice device(device_);
  if (pooled()) {
    Ignore(cudaFreeAsync(memory, stream));
  } else {
    Ignore(cudaStreamSynchronize(stream));
    Ignore(cudaFree(memory));
  }
}

}  // namespace raggrad::cuda
