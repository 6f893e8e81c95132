// Identity of a stream. Internal to the library.
#pragma once

#include <cstdint>

namespace raggrad::cuda {

// A handle alone does not identify a stream. Null and cudaStreamLegacy mean the default stream of the current device,
// cudaStreamPerThread means a stream of the calling thread. Objects that outlive a call therefore keep a StreamId.
struct StreamId {
  void* handle = nullptr;  // a cudaStream_t; null for both handles of the default stream
  int device = 0;
  uint64_t thread = 0;  // ThreadNumber() of the owner of a per-thread stream; 0 for all other streams

  bool operator==(const StreamId&) const noexcept = default;
};

}  // namespace raggrad::cuda
