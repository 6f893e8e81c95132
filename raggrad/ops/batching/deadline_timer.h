// Deadlines of a runtime. Internal to the family.
//
// One thread, the watcher, sleeps until the next of many deadlines and decides what has expired. It never runs code of
// the user's: what has to be carried out goes to helpers. There is none before the first is needed. A helper that a
// callback keeps busy delays nobody: an alarm that has waited for 2 ms gets a helper of its own, until there are
// kMostHelpers; then alarms wait for one to become free, and the watcher goes on deciding. Of helpers without work one
// stays. If the system has no thread to give, the watcher asks again every 2 ms.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "raggrad/ops/batching/batching.h"

namespace raggrad::batching {

using Clock = std::chrono::steady_clock;

// `from` + `time`; nothing if that is too far away to be reached. Negative times count as 0.
std::optional<Clock::time_point> After(Clock::time_point from, WaitTime time) noexcept;

// The work at a deadline, in two parts, each done once.
class TimerAlarm {
 public:
  virtual ~TimerAlarm() = default;
  // On the watcher: neither waits nor runs code of the user's. True if there is something to carry out.
  virtual bool Decide() noexcept = 0;
  // On a helper, or on the thread that stops the timer.
  virtual void CarryOut() noexcept = 0;
};

class DeadlineTimer {
 public:
  static constexpr size_t kMostHelpers = 64;

  DeadlineTimer();  // may throw std::bad_alloc
  ~DeadlineTimer();
  // Alarms that have not gone off never do. What has been decided is carried out, here if no helper is free, and all
  // threads have ended when this returns; but a helper that calls it ends after its alarm. In a child of fork() nothing
  // is touched: the threads stayed in the parent.
  void Stop() noexcept;

  // The alarm goes off at `when` or soon after. Starts the watcher on first use; throws std::system_error or
  // std::bad_alloc if that is impossible. The number is for Cancel; it is never 0.
  int64_t Set(Clock::time_point when, std::unique_ptr<TimerAlarm> alarm);
  // The alarm goes, unless its time has come already. Costs O(log alarms) and wakes nobody. 0 is ignored.
  void Cancel(int64_t number) noexcept;

 private:
  struct Shared;

  const std::shared_ptr<Shared> shared_;  // with the threads, of which one may outlive this object by an alarm's rest
};

}  // namespace raggrad::batching
