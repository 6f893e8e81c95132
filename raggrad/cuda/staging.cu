#include <array>
#include <bit>
#include <utility>

#include "raggrad/cuda/staging.cuh"

namespace raggrad::cuda {

Staging::~Staging() {
  if (free_ != nullptr) {
    Ignore(cudaEventSynchronize(free_));
    Ignore(cudaEventDestroy(free_));
  }
  Ignore(cudaFreeHost(data_));
}

Result<Staging*> Staging::Next(size_t bytes) noexcept {
  thread_local std::array<Staging, 4> buffers;
  thread_local size_t turn = 0;
  Staging& buffer = buffers[turn++ % buffers.size()];
  if (Status s = buffer.Reserve(bytes); !s.ok()) return s;
  return &buffer;
}

Status Staging::Reserve(size_t bytes) noexcept {
  if (free_ != nullptr) {
    if (Status s = ToStatus(cudaEventSynchronize(free_), "a kernel failed"); !s.ok()) return s;
  }
  int device = 0;
  if (Status s = ToStatus(cudaGetDevice(&device), "no device"); !s.ok()) return s;
  if (device != device_) {  // an event belongs to one device, pinned memory to all
    if (std::exchange(device_, -1) >= 0) Ignore(cudaEventDestroy(std::exchange(free_, nullptr)));
    const cudaError_t error = cudaEventCreateWithFlags(&free_, cudaEventDisableTiming);
    if (Status s = ToStatus(error, "no event"); !s.ok()) return s;
    device_ = device;
  }
  if (bytes <= bytes_) return {};
  Ignore(cudaFreeHost(std::exchange(data_, nullptr)));
  bytes_ = 0;
  const size_t grown = std::bit_ceil(bytes);
  if (Status s = ToStatus(cudaMallocHost(&data_, grown), "no pinned memory"); !s.ok()) return s;
  bytes_ = grown;
  return {};
}

Status Staging::Release(cudaStream_t stream) noexcept {
  return ToStatus(cudaEventRecord(free_, stream), "an event could not be recorded");
}

}  // namespace raggrad::cuda
