// Relay: does serial work chunk after chunk while later chunks are still being prepared.
//
// Chunks become ready in any order, on any threads. One thread at a time has the turn and does the serial work of the
// chunks that are ready. No thread waits for the turn: the caller does what is left when all threads have finished.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "raggrad/core/scratch.h"

namespace raggrad::cpu {

class Relay {
 public:
  static Result<Relay> Make(const Context& ctx, int64_t chunks) noexcept {
    Relay relay;
    auto ready = Scratch<uint8_t>::Make(ctx, chunks);
    if (!ready.ok()) return ready.status();
    relay.ready_ = *std::move(ready);
    relay.chunks_ = chunks;
    std::fill_n(relay.ready_.data(), chunks, uint8_t{0});
    return relay;
  }

  void Ready(int64_t chunk) noexcept { std::atomic_ref(ready_[chunk]).store(1, std::memory_order_release); }

  // Guard: has the turn while it lives, unless another thread had it. Work done in one turn is visible in the next.
  class Turn {
   public:
    explicit Turn(Relay& relay) noexcept
        : relay_(relay), mine_(std::atomic_ref(relay.taken_).exchange(1, std::memory_order_acquire) == 0) {}
    ~Turn() {
      if (mine_) std::atomic_ref(relay_.taken_).store(0, std::memory_order_release);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    bool ok() const noexcept { return mine_; }

    // Number of chunks, counted from the first, that are ready. Only for the thread that has the turn.
    int64_t CountReady() noexcept {
      int64_t& count = relay_.count_;
      while (count < relay_.chunks_ && std::atomic_ref(relay_.ready_[count]).load(std::memory_order_acquire) != 0) {
        ++count;
      }
      return count;
    }

   private:
    Relay& relay_;
    const bool mine_;
  };

 private:
  int64_t chunks_ = 0;
  Scratch<uint8_t> ready_;
  uint8_t taken_ = 0;
  int64_t count_ = 0;  // chunks known to be ready; changed only by the thread that has the turn
};

}  // namespace raggrad::cpu
