// FirstError: the smallest position at which parallel checks found a fault, the one that a serial loop meets first.
#pragma once

#include <atomic>
#include <cstdint>

namespace raggrad::cpu {

class FirstError {
 public:
  static constexpr int64_t kNone = INT64_MAX;

  void Report(int64_t position) noexcept {
    int64_t seen = position_.load(std::memory_order_relaxed);
    while (position < seen && !position_.compare_exchange_weak(seen, position, std::memory_order_relaxed)) {
    }
  }
  bool found() const noexcept { return position() != kNone; }
  int64_t position() const noexcept { return position_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> position_{kNone};
};

}  // namespace raggrad::cpu
