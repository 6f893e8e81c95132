// Events, which make one stream wait for work of another. Internal to the library.
#pragma once

#include <utility>

#include "raggrad/core/result.h"
#include "raggrad/core/status.h"
#include "raggrad/cuda/stream_id.h"

namespace raggrad::cuda {

struct Events {
  static constexpr char kSymbol[] = "raggrad_cuda_events";

  // The stream that the handle means to the calling thread, on its current device.
  Result<StreamId> (*identify)(void* stream) noexcept;
  // Whether the stream is being captured in a CUDA graph.
  Result<bool> (*is_captured)(void* stream) noexcept;
  // A new event, which completes when the work that is now on the stream is done.
  Result<void*> (*record)(void* stream) noexcept;
  // Makes later work wait for the event: work that the calling thread queues behind the stream (BehindAllOf).
  Status (*wait)(const StreamId& stream, const void* event) noexcept;
  // Waits that are already queued stay valid.
  void (*destroy)(void* event) noexcept;
};

// RAII owner of a CUDA event.
class Event {
 public:
  static Result<Event> Record(const Events& events, void* stream) noexcept {
    Result<void*> event = events.record(stream);
    if (!event.ok()) return event.status();
    return Event(events, *event);
  }
  Event(Event&& other) noexcept : events_(other.events_), event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(events_, other.events_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_ != nullptr) events_->destroy(event_);
  }

  // Makes later work behind the stream wait for the event.
  Status Delay(const StreamId& stream) const noexcept { return events_->wait(stream, event_); }

 private:
  Event(const Events& events, void* event) noexcept : events_(&events), event_(event) {}

  const Events* events_;
  void* event_;
};

}  // namespace raggrad::cuda
