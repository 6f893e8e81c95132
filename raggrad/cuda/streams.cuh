// Identity and state of streams. Internal to the CUDA library.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "raggrad/core/result.h"
#include "raggrad/cuda/stream_id.h"

namespace raggrad::cuda {

// A number for the calling thread. No other thread of the process ever gets the same; never 0.
uint64_t ThreadNumber() noexcept;

// The stream that the handle means to the calling thread, on its current device. A stream that is being captured counts
// as one of the current device.
Result<StreamId> Identify(void* stream) noexcept;

// A handle whose work runs after all work that is on the stream, if the calling thread uses it on the stream's device.
// That is the stream itself, or the default stream if it is the per-thread stream of another thread: no handle reaches
// that one, but the default stream waits for all of them.
cudaStream_t BehindAllOf(const StreamId& stream) noexcept;

// Whether the stream is being captured in a CUDA graph, or is blocked because another stream is.
Result<bool> IsCaptured(cudaStream_t stream) noexcept;

}  // namespace raggrad::cuda
