// Relay: the part of the work that has to be done chunk after chunk, done while other chunks are still being prepared.
//
// Chunks become ready in any order, on any threads. Whoever makes one ready whose turn has come, or whose turn comes
// later, does its part and those of the chunks behind it that are ready already. Nobody waits.
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
    auto arrivals = Scratch<uint8_t>::Make(ctx, chunks);
    if (!arrivals.ok()) return arrivals.status();
    relay.arrivals_ = *std::move(arrivals);
    relay.chunks_ = chunks;
    std::fill_n(relay.arrivals_.data(), chunks, uint8_t{0});
    relay.arrivals_[0] = 1;  // its turn is now
    return relay;
  }

  // Once for each chunk. follow(c) is called once for each chunk, in their order, each call after the one before; for
  // none behind a chunk that never becomes ready.
  template <class F>
  void Ready(int64_t chunk, const F& follow) noexcept {
    // At each chunk two arrive, the turn and who has made it ready: the second goes on.
    for (; chunk < chunks_ && std::atomic_ref(arrivals_[chunk]).fetch_add(1, std::memory_order_acq_rel) == 1; ++chunk) {
      follow(chunk);
    }
  }

 private:
  int64_t chunks_ = 0;
  Scratch<uint8_t> arrivals_;
};

}  // namespace raggrad::cpu
