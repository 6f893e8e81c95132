// What makes the work of one stream wait for that of another. Internal to the library.
#pragma once

#include <utility>

#include "raggrad/core/result.h"
#include "raggrad/core/status.h"
#include "raggrad/cuda/stream_id.h"

namespace raggrad::cuda {

struct Events {
  static constexpr char kSymbol[] = "raggrad_cuda_events";

  Result<StreamId> (*identify)(void* stream) noexcept;  // as the calling thread and its current device mean it
  Result<bool> (*is_captured)(void* stream) noexcept;   // what is queued on the stream becomes part of a graph
  Result<void*> (*record)(void* stream) noexcept;       // what is queued on the stream up to now
  // What the calling thread queues behind all of the stream from now on waits for the event.
  Status (*wait)(const StreamId& stream, const void* event) noexcept;
  void (*destroy)(void* event) noexcept;   // waits that have been queued go on
  int (*set_device)(int device) noexcept;  // makes it the calling thread's current one; which was it before
};

// Makes the device of a stream the current one as long as it lives.
class DeviceOf {
 public:
  DeviceOf(const Events& events, const StreamId& stream) noexcept
      : events_(events), before_(events.set_device(stream.device)) {}
  DeviceOf(const DeviceOf&) = delete;
  DeviceOf& operator=(const DeviceOf&) = delete;
  ~DeviceOf() { events_.set_device(before_); }

 private:
  const Events& events_;
  const int before_;
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

  Status Delay(const StreamId& stream) const noexcept { return events_->wait(stream, event_); }

 private:
  Event(const Events& events, void* event) noexcept : events_(&events), event_(event) {}

  const Events* events_;
  void* event_;
};

}  // namespace raggrad::cuda
