#include "raggrad/cuda/current_device.cuh"
#include "raggrad/cuda/errors.cuh"
#include "raggrad/cuda/events.h"
#include "raggrad/cuda/streams.cuh"

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

Status Wait(const StreamId& stream, const void* event) noexcept {
  const CurrentDevice device(stream.device);
  const auto what = static_cast<cudaEvent_t>(const_cast<void*>(event));
  return ToStatus(cudaStreamWaitEvent(BehindAllOf(stream), what, 0), "a stream could not wait");
}

void Destroy(void* event) noexcept { Ignore(cudaEventDestroy(static_cast<cudaEvent_t>(event))); }

Result<bool> IsStreamCaptured(void* stream) noexcept { return IsCaptured(static_cast<cudaStream_t>(stream)); }

}  // namespace

extern "C" [[gnu::visibility("default")]] const Events raggrad_cuda_events = {&Identify, &IsStreamCaptured, &Record,
                                                                              &Wait, &Destroy};

}  // namespace raggrad::cuda
