#include <atomic>

#include "raggrad/cuda/errors.cuh"
#include "raggrad/cuda/streams.cuh"

namespace raggrad::cuda {

uint64_t ThreadNumber() noexcept {
  static std::atomic<uint64_t> threads = 0;
  thread_local const uint64_t number = ++threads;
  return number;
}

Result<StreamId> Identify(void* stream) noexcept {
  const auto handle = static_cast<cudaStream_t>(stream);
  StreamId id{.handle = handle == cudaStreamLegacy ? nullptr : stream};
  if (handle == cudaStreamPerThread) id.thread = ThreadNumber();
  bool of_current_device = id.handle == nullptr || id.thread != 0;
  if (!of_current_device) {
    // Asking a captured stream for its device would end the capture. Such a stream is of the current device, or nothing
    // could be queued on it.
    const Result<bool> captured = IsCaptured(handle);
    if (!captured.ok()) return captured.status();
    of_current_device = *captured;
  }
  const cudaError_t error = of_current_device ? cudaGetDevice(&id.device) : cudaStreamGetDevice(handle, &id.device);
  if (Status s = ToStatus(error, "no device"); !s.ok()) return s;
  return id;
}

cudaStream_t BehindAllOf(const StreamId& stream) noexcept {
  const bool elsewhere = stream.thread != 0 && stream.thread != ThreadNumber();
  return elsewhere ? cudaStreamLegacy : static_cast<cudaStream_t>(stream.handle);
}

Result<bool> IsCaptured(cudaStream_t stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream, &status);
  if (error == cudaErrorStreamCaptureImplicit) {  // the default stream, while a stream that waits for it is captured
    cudaGetLastError();
    return true;
  }
  if (Status s = ToStatus(error, "a stream did not answer"); !s.ok()) return s;
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace raggrad::cuda
