// What makes the work of one stream wait for that of another. Internal to the library.
#pragma once

#include "raggrad/core/result.h"
#include "raggrad/core/status.h"

namespace raggrad::cuda {

struct Events {
  static constexpr char kSymbol[] = "raggrad_cuda_events";

  Result<void*> (*record)(void* stream) noexcept;            // what is queued on the stream up to now
  Status (*wait)(void* stream, const void* event) noexcept;  // what is queued on the stream from now on waits for it
  void (*destroy)(void* event) noexcept;                     // waits that have been queued go on
};

}  // namespace raggrad::cuda
