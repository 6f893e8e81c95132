// Which stream a handle means. Internal to the library.
#pragma once

#include <cstdint>

namespace raggrad::cuda {

// Two of CUDA's handles mean another stream on every device, or even in every thread: null (and cudaStreamLegacy, which
// is the same) the current device's default stream, cudaStreamPerThread one of the calling thread. So whatever outlives
// a call remembers this instead of the handle.
struct StreamId {
  void* handle = nullptr;  // a cudaStream_t; null for both handles of the default stream
  int device = 0;
  uint64_t thread = 0;  // the number of the thread whose stream it is; 0 for streams that all threads mean

  bool operator==(const StreamId&) const noexcept = default;
};

}  // namespace raggrad::cuda
