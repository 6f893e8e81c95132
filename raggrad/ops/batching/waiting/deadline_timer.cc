#include "raggrad/ops/batching/waiting/deadline_timer.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "raggrad/core/fork.h"

namespace raggrad::batching {
namespace {

// Waits of this length or longer have no deadline, since the clock's numbers could overflow.
constexpr WaitTime kLongestWait = std::chrono::hours(24 * 365 * 100);

// How long an alarm waits for a busy helper before another one is started.
constexpr auto kPatience = std::chrono::milliseconds(2);

}  // namespace

std::optional<Clock::time_point> After(Clock::time_point from, WaitTime time) noexcept {
  if (time >= kLongestWait) return std::nullopt;
  return from + std::max(time, WaitTime::zero());
}

struct DeadlineTimer::Shared {
  struct Numbered {
    int64_t number;
    std::unique_ptr<TimerAlarm> alarm;
  };
  using Alarms = std::multimap<Clock::time_point, Numbered>;
  using Threads = std::list<std::thread>;

  bool forked() const noexcept { return fork_generation != ForkGeneration(); }

  static void Watch(const std::shared_ptr<Shared>& shared) noexcept;
  static void Help(const std::shared_ptr<Shared>& shared, Threads::iterator self) noexcept;

  // Called under the lock, which is released while an alarm does its part.
  void DecideNext(std::unique_lock<std::mutex>& lock) noexcept;
  void CarryOutNext(std::unique_lock<std::mutex>& lock) noexcept;
  // Called under the lock. Starts a helper if alarms wait for one. Returns when to look again.
  Clock::time_point LookAfterHelpers(const std::shared_ptr<Shared>& shared, Clock::time_point now) noexcept;
  void JoinEnded() noexcept;

  const int fork_generation = ForkGeneration();
  std::mutex mutex;
  std::condition_variable changed;  // for the watcher
  std::condition_variable work;     // for helpers
  Alarms alarms;
  std::map<int64_t, Alarms::iterator> by_number;
  Alarms due;  // decided; nodes move here from `alarms`, which needs no memory
  int64_t last_number = 0;
  bool stopping = false;
  std::thread watcher;
  Threads helpers;
  Threads ended;  // helpers that found no work, to be joined
  size_t idle = 0;
  Clock::time_point next_helper{};  // no helper is started before
  std::shared_ptr<Shared> itself;   // set in a child of fork(): then nothing here is ever destroyed
};

void DeadlineTimer::Shared::DecideNext(std::unique_lock<std::mutex>& lock) noexcept {
  Alarms::node_type next = alarms.extract(alarms.begin());
  by_number.erase(next.mapped().number);
  lock.unlock();
  const bool more = next.mapped().alarm->Decide();
  if (!more) next = {};  // destroyed before the lock is taken again
  lock.lock();
  if (!more) return;
  due.insert(std::move(next));
  work.notify_one();
}

void DeadlineTimer::Shared::CarryOutNext(std::unique_lock<std::mutex>& lock) noexcept {
  Alarms::node_type next = due.extract(due.begin());
  lock.unlock();
  next.mapped().alarm->CarryOut();
  next = {};
  if (!forked()) lock.lock();  // if the callback forked, this is the child, where no thread may be left to unlock it
}

Clock::time_point DeadlineTimer::Shared::LookAfterHelpers(const std::shared_ptr<Shared>& shared,
                                                          Clock::time_point now) noexcept {
  JoinEnded();
  if (due.size() <= idle || helpers.size() >= kMostHelpers) return Clock::time_point::max();
  const Clock::time_point when = helpers.empty() ? next_helper : std::max(next_helper, due.begin()->first + kPatience);
  if (now < when) return when;
  next_helper = now + kPatience;
  try {
    const auto self = helpers.emplace(helpers.end());
    try {
      *self = std::thread([shared, self] { Help(shared, self); });
    } catch (...) {
      helpers.erase(self);
      throw;
    }
  } catch (const std::exception&) {  // no thread, or no memory for it: tried again at next_helper
  }
  return next_helper;
}

void DeadlineTimer::Shared::JoinEnded() noexcept {
  for (std::thread& thread : ended) thread.join();
  ended.clear();
}

void DeadlineTimer::Shared::Watch(const std::shared_ptr<Shared>& shared) noexcept {
  Shared& s = *shared;
  std::unique_lock lock(s.mutex);
  while (!s.stopping) {
    const Clock::time_point now = Clock::now();
    Clock::time_point next = s.LookAfterHelpers(shared, now);
    if (!s.alarms.empty()) next = std::min(next, s.alarms.begin()->first);
    if (!s.alarms.empty() && s.alarms.begin()->first <= now) {
      s.DecideNext(lock);
    } else if (next == Clock::time_point::max()) {
      s.changed.wait(lock);
    } else {
      s.changed.wait_until(lock, next);
    }
  }
}

void DeadlineTimer::Shared::Help(const std::shared_ptr<Shared>& shared, Threads::iterator self) noexcept {
  Shared& s = *shared;
  std::unique_lock lock(s.mutex);
  while (lock.owns_lock()) {
    if (!s.due.empty()) {
      s.CarryOutNext(lock);
    } else if (s.stopping) {
      return;
    } else if (s.idle > 0) {
      s.ended.splice(s.ended.end(), s.helpers, self);
      return;
    } else {
      ++s.idle;
      s.work.wait(lock);
      --s.idle;
    }
  }
}

DeadlineTimer::DeadlineTimer() : shared_(std::make_shared<Shared>()) {}

DeadlineTimer::~DeadlineTimer() { Stop(); }

void DeadlineTimer::Stop() noexcept {
  Shared& s = *shared_;
  if (s.forked()) {
    s.itself = shared_;
    return;
  }
  std::unique_lock lock(s.mutex);
  s.stopping = true;
  s.changed.notify_all();
  std::thread watcher = std::move(s.watcher);
  lock.unlock();
  if (watcher.joinable()) watcher.join();
  lock.lock();  // no alarm becomes due from here on
  s.work.notify_all();
  while (lock.owns_lock() && !s.due.empty()) s.CarryOutNext(lock);
  if (!lock.owns_lock()) return;
  Shared::Threads helpers = std::move(s.helpers);
  s.JoinEnded();
  lock.unlock();
  for (std::thread& helper : helpers) {
    if (helper.get_id() == std::this_thread::get_id()) {
      helper.detach();
    } else {
      helper.join();
    }
  }
}

int64_t DeadlineTimer::Set(Clock::time_point when, std::unique_ptr<TimerAlarm> alarm) {
  Shared& s = *shared_;
  const std::lock_guard lock(s.mutex);
  if (!s.watcher.joinable() && !s.stopping) s.watcher = std::thread([shared = shared_] { Shared::Watch(shared); });
  const bool next = s.alarms.empty() || when < s.alarms.begin()->first;
  const auto position = s.alarms.emplace(when, Shared::Numbered{++s.last_number, std::move(alarm)});
  try {
    s.by_number.emplace(s.last_number, position);
  } catch (...) {
    s.alarms.erase(position);
    throw;
  }
  if (next) s.changed.notify_one();
  return s.last_number;
}

void DeadlineTimer::Cancel(int64_t number) noexcept {
  if (number == 0) return;
  std::unique_ptr<TimerAlarm> forgotten;  // destroyed after unlocking
  const std::lock_guard lock(shared_->mutex);
  const auto found = shared_->by_number.find(number);
  if (found == shared_->by_number.end()) return;
  forgotten = std::move(found->second->second.alarm);
  shared_->alarms.erase(found->second);
  shared_->by_number.erase(found);
}

}  // namespace raggrad::batching
