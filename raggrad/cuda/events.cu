#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/events.h"

namespace raggrad::cuda {
namespace {

Result<void*> Record(void* stream) noexcept {
  cudaEvent_t event = nullptr;
  if (Status s = ToStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "no event"); !s.ok()) return s;
  const cudaError_t error = cudaEventRecord(event, static_cast<cudaStream_t>(stream));
  if (Status s = ToStatus(error, "an event could not be recorded"); !s.ok()) {
    Ignore(cudaEventDestroy(event));
    return s;
  }
  return static_cast<void*>(event);
}

Status Wait(void* stream, const void* event) noexcept {
  const auto of = static_cast<cudaEvent_t>(const_cast<void*>(event));
  return ToStatus(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), of, 0), "a stream could not wait");
}

void Destroy(void* event) noexcept { Ignore(cudaEventDestroy(static_cast<cudaEvent_t>(event))); }

Result<bool> IsCaptured(void* stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status);
  if (Status s = ToStatus(error, "a stream did not answer"); !s.ok()) return s;
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] const Events raggrad_cuda_events = {&Record, &Wait, &Destroy, &IsCaptured};

}  // namespace raggrad::cuda
