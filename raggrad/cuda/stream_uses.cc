#include "raggrad/cuda/stream_uses.h"

#include <algorithm>
#include <new>

#include "raggrad/cuda/loader.h"

namespace raggrad::cuda {

Result<bool> IsOwner(std::string_view op, void* stream, const StreamId& owner) noexcept {
  return WithKernels<Events>(op, Device::Cuda(owner.device), [&](const Events& events) -> Result<bool> {
    const Result<StreamId> user = events.identify(stream);
    if (!user.ok()) return user.status();
    return *user == owner;
  });
}

Status StreamUses::Add(std::string_view op, Device device, void* stream) noexcept {
  return WithKernels<Events>(op, device, [&](const Events& events) -> Status {
    const Result<StreamId> user = events.identify(stream);
    if (!user.ok()) return user.status();
    const Result<bool> captured = events.is_captured(stream);
    if (!captured.ok() || *captured) return captured.status();
    Result<Event> use = Event::Record(events, stream);
    if (!use.ok()) return use.status();
    try {
      const std::lock_guard lock(mutex_);
      const auto known = std::ranges::find(last_uses_, *user, &std::pair<StreamId, Event>::first);
      if (known != last_uses_.end()) {
        known->second = *std::move(use);
      } else {
        last_uses_.emplace_back(*user, *std::move(use));
      }
      return {};
    } catch (const std::bad_alloc&) {
      return Status(Code::kResourceExhausted, "no memory for an event");
    }
  });
}

void StreamUses::Delay(const StreamId& owner) noexcept {
  for (const auto& [stream, use] : last_uses_) {
    [[maybe_unused]] const Status delayed = use.Delay(owner);  // fails only if CUDA as a whole does
  }
}

}  // namespace raggrad::cuda
