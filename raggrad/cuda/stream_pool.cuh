// Device memory in the order of streams, as an Allocator. Internal to the CUDA library.
#pragma once

#include "raggrad/core/allocator.h"
#include "raggrad/core/result.h"
#include "raggrad/cuda/stream_id.h"

namespace raggrad::cuda {

// Memory of the stream's device, from DeviceMemory. May be given back by any thread, whatever its current device is:
// it goes back in the order of the stream it was asked for on. Never destroyed.
Result<Allocator*> PoolOf(const StreamId& stream) noexcept;

}  // namespace raggrad::cuda
