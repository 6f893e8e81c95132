// Stream-ordered device memory as an Allocator. Internal to the CUDA library.
#pragma once

#include "raggrad/core/allocator.h"
#include "raggrad/core/result.h"
#include "raggrad/cuda/stream_id.h"

namespace raggrad::cuda {

// Memory of the stream's device, from DeviceMemory. Any thread may free it, with any current device; it is freed in the
// order of the stream that it was allocated on. Never destroyed.
Result<Allocator*> PoolOf(const StreamId& stream) noexcept;

}  // namespace raggrad::cuda
