// DeadlineTimer: the deadlines of a runtime. Internal to the family.
//
// One thread, the watcher, sleeps until the next of many deadlines and decides what has expired. It never runs the
// user's code: helper threads do. The first helper starts when it is needed. An alarm that has waited for 2 ms gets
// another helper, so one that a callback keeps busy delays no other alarm. There are at most kMostHelpers; beyond that
// alarms wait for a free one, while the watcher goes on deciding. One idle helper stays, further ones end. If a thread
// cannot be started, the watcher tries again every 2 ms.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "raggrad/ops/batching/batching.h"

namespace raggrad::batching {

using Clock = std::chrono::steady_clock;

// `from` + `time`; nothing if that is more than 100 years away. Negative times count as 0.
std::optional<Clock::time_point> After(Clock::time_point from, WaitTime time) noexcept;

// The work at a deadline, in two parts. Each is done at most once.
class TimerAlarm {
 public:
  virtual ~TimerAlarm() = default;
  // Runs on the watcher: must neither wait nor run the user's code. True if there is something to carry out.
  virtual bool Decide() noexcept = 0;
  // Runs on a helper, or on the thread that stops the timer.
  virtual void CarryOut() noexcept = 0;
};

class DeadlineTimer {
 public:
  static constexpr size_t kMostHelpers = 64;

  DeadlineTimer();  // may throw std::bad_alloc
  ~DeadlineTimer();
  // Drops the alarms that have not gone off. Carries out those that have been decided, on this thread if no helper is
  // free. When it returns all threads have ended, except a helper that called it, which ends after its alarm. In a
  // child of fork() it touches nothing: the threads stayed in the parent.
  void Stop() noexcept;

  // Lets the alarm go off at `when` or soon after. Starts the watcher on first use; throws std::system_error or
  // std::bad_alloc if that is impossible. Returns a number for Cancel, never 0.
  int64_t Set(Clock::time_point when, std::unique_ptr<TimerAlarm> alarm);
  // Removes the alarm, unless it has gone off already. Costs O(log alarms) and wakes no thread. Ignores 0.
  void Cancel(int64_t number) noexcept;

 private:
  struct Shared;

  const std::shared_ptr<Shared> shared_;  // with the threads: a helper whose alarm destroys this object outlives it
};

}  // namespace raggrad::batching
