// One thread that sleeps until the next of many deadlines. Internal to the family.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "raggrad/ops/batching/batching.h"

namespace raggrad::batching {

using Clock = std::chrono::steady_clock;

// `from` + `time`; nothing if that is too far away to be reached. Negative times count as 0.
std::optional<Clock::time_point> After(Clock::time_point from, WaitTime time) noexcept;

class DeadlineTimer {
 public:
  DeadlineTimer();  // may throw std::bad_alloc
  ~DeadlineTimer();
  // Ends the thread; alarms that have not gone off never do. From an alarm: the thread ends after it.
  void Stop() noexcept;

  // Calls `alarm` from the timer's thread at `when` or soon after. Starts the thread on first use; throws
  // std::system_error or std::bad_alloc if that is impossible. The number is for Cancel; it is never 0.
  int64_t Set(Clock::time_point when, std::function<void()> alarm);
  // The alarm goes, unless its time has come already. Costs O(log alarms) and wakes nobody. 0 is ignored.
  void Cancel(int64_t number) noexcept;

 private:
  struct Shared;

  static void Loop(const std::shared_ptr<Shared>& shared) noexcept;

  const std::shared_ptr<Shared> shared_;  // with the thread, which may outlive this object by the rest of an alarm
  std::thread thread_;
};

}  // namespace raggrad::batching
