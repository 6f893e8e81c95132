// Uses of memory on other streams than the one in whose order it is freed, its owner. Internal to the library.
#pragma once

#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "raggrad/core/device.h"
#include "raggrad/cuda/events.h"

namespace raggrad::cuda {

// Whether the handle means the owner to the calling thread.
Result<bool> IsOwner(std::string_view op, void* stream, const StreamId& owner) noexcept;

class StreamUses {
 public:
  // Notes that work queued so far on `stream`, one of `device` but not the owner, uses the memory. Ignores streams that
  // are being captured: who keeps a graph keeps the memory alive. Any thread may call it.
  Status Add(std::string_view op, Device device, void* stream) noexcept;

  // Makes later work on `owner`, such as freeing the memory, wait for all uses.
  void Delay(const StreamId& owner) noexcept;

 private:
  std::mutex mutex_;
  std::vector<std::pair<StreamId, Event>> last_uses_;  // the latest of each stream
};

}  // namespace raggrad::cuda
