// Streams by identity, not by handle. Internal to the CUDA library.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "raggrad/core/result.h"
#include "raggrad/cuda/stream_id.h"

namespace raggrad::cuda {

// A number of the calling thread that no other thread of the process has, before or after; never 0.
uint64_t ThreadNumber() noexcept;

// The stream that the handle means here: for the calling thread and its current device. A stream that is being captured
// is taken for one of the current device.
Result<StreamId> Identify(void* stream) noexcept;

// A handle for the calling thread: what it queues there, on the stream's device, comes after all that is on the stream.
// No handle means the per-thread stream of another thread; the default stream waits for all of those.
cudaStream_t BehindAllOf(const StreamId& stream) noexcept;

// Whether what is queued on the stream becomes part of a graph, or cannot be queued because of one that is made.
Result<bool> IsCaptured(cudaStream_t stream) noexcept;

}  // namespace raggrad::cuda
