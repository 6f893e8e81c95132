// What makes the work of one stream wait for that of another. Internal to the library.
#pragma once

#include <utility>

#include "raggrad/core/result.h"
#include "raggrad/core/status.h"

namespace raggrad::cuda {

struct Events {
  static constexpr char kSymbol[] = "raggrad_cuda_events";

  Result<void*> (*record)(void* stream) noexcept;            // what is queued on the stream up to now
  Status (*wait)(void* stream, const void* event) noexcept;  // what is queued on the stream from now on waits for it
  void (*destroy)(void* event) noexcept;                     // waits that have been queued go on
  Result<bool> (*is_captured)(void* stream) noexcept;        // what is queued on the stream becomes part of a graph
};

// An event that is destroyed.
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

  Status Delay(void* stream) const noexcept { return events_->wait(stream, event_); }

 private:
  Event(const Events& events, void* event) noexcept : events_(&events), event_(event) {}

  const Events* events_;
  void* event_;
};

}  // namespace raggrad::cuda
