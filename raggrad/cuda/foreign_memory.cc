#include "raggrad/cuda/foreign_memory.h"

#include "raggrad/cuda/events.h"
#include "raggrad/cuda/library.h"
#include "raggrad/cuda/loader.h"

namespace raggrad {

Result<Device> DeviceOfMemory(std::string_view op, const void* data) noexcept {
  const Result<const void*> library = cuda::FindKernels(op, cuda::Library::kSymbol);
  if (!library.ok()) return library.status();
  return WithOp(op, [&] { return static_cast<const cuda::Library*>(*library)->device_of(data); });
}

Status OrderStreams(std::string_view op, Device device, void* earlier, void* later) noexcept {
  return cuda::WithKernels<cuda::Events>(op, device, [&](const cuda::Events& events) -> Status {
    const Result<cuda::StreamId> before = events.identify(earlier);
    if (!before.ok()) return before.status();
    const Result<cuda::StreamId> after = events.identify(later);
    if (!after.ok() || *before == *after) return after.status();
    const Result<cuda::Event> event = cuda::Event::Record(events, earlier);
    if (!event.ok()) return event.status();
    return event->Delay(*after);
  });
}

}  // namespace raggrad
