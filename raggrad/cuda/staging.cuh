// Host memory that a stream reads later: descriptions of work that are made anew for every call.
#pragma once

#include "raggrad/cuda/call.cuh"

namespace raggrad::cuda {

// Pinned memory of this thread. There are a few buffers that are used in turn, so that a call only waits if what
// several calls before it left there has not been read; they grow to what the largest call needed, and go with the
// thread.
class Staging {
 public:
  // A buffer that nothing reads any more.
  static Result<Staging*> Next(size_t bytes) noexcept;

  void* data() const noexcept { return data_; }
  // The buffer is free again when the stream has come here.
  Status Release(cudaStream_t stream) noexcept;

  Staging() noexcept = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

 private:
  Status Reserve(size_t bytes) noexcept;

  void* data_ = nullptr;
  size_t bytes_ = 0;
  cudaEvent_t free_ = nullptr;  // of device_
  int device_ = -1;
};

}  // namespace raggrad::cuda
