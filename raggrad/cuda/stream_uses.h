// Memory that goes back in the order of one stream, its owner, and is used on others as well. Internal to the library.
#pragma once

#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "raggrad/cuda/events.h"

namespace raggrad::cuda {

class StreamUses {
 public:
  // What has been queued on `stream` uses the memory. Not remembered of the owner itself, nor of a stream that is being
  // captured: whoever has a graph keeps the memory as long. By any thread.
  Status Add(std::string_view op, void* stream, const StreamId& owner) noexcept;

  // What is queued behind `owner` from now on, such as giving the memory back, waits for all uses.
  void Delay(const StreamId& owner) noexcept;

 private:
  std::mutex mutex_;
  std::vector<std::pair<StreamId, Event>> last_uses_;  // one for each stream
};

}  // namespace raggrad::cuda
