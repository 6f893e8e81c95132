// Guard of the current device. Internal to the CUDA library.
#pragma once

#include "raggrad/cuda/errors.cuh"

namespace raggrad::cuda {

// Makes a device the current one of the calling thread, until the guard is destroyed.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) noexcept {
    Ignore(cudaGetDevice(&before_));
    changed_ = before_ != device;
    if (changed_) Ignore(cudaSetDevice(device));
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() {
    if (changed_) Ignore(cudaSetDevice(before_));
  }

 private:
  int before_ = 0;
  bool changed_;
};

}  // namespace raggrad::cuda
