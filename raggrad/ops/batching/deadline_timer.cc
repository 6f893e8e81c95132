#include "raggrad/ops/batching/deadline_timer.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

namespace raggrad::batching {
namespace {

// Longer waits than this have no deadline: the clock's numbers would overflow.
constexpr WaitTime kLongestWait = std::chrono::hours(24 * 365 * 100);

}  // namespace

std::optional<Clock::time_point> After(Clock::time_point from, WaitTime time) noexcept {
  if (time >= kLongestWait) return std::nullopt;
  return from + std::max(time, WaitTime::zero());
}

struct DeadlineTimer::Shared {
  struct Alarm {
    int64_t number;
    std::function<void()> call;
  };
  using Alarms = std::multimap<Clock::time_point, Alarm>;

  std::mutex mutex;
  std::condition_variable changed;
  Alarms alarms;
  std::map<int64_t, Alarms::iterator> by_number;
  int64_t last_number = 0;
  bool stopping = false;
};

DeadlineTimer::DeadlineTimer() : shared_(std::make_shared<Shared>()) {}

DeadlineTimer::~DeadlineTimer() { Stop(); }

void DeadlineTimer::Stop() noexcept {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->changed.notify_all();
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

int64_t DeadlineTimer::Set(Clock::time_point when, std::function<void()> alarm) {
  Shared& shared = *shared_;
  const std::lock_guard lock(shared.mutex);
  if (!thread_.joinable() && !shared.stopping) thread_ = std::thread([s = shared_] { Loop(s); });
  const bool next = shared.alarms.empty() || when < shared.alarms.begin()->first;
  const auto position = shared.alarms.emplace(when, Shared::Alarm{++shared.last_number, std::move(alarm)});
  try {
    shared.by_number.emplace(shared.last_number, position);
  } catch (...) {
    shared.alarms.erase(position);
    throw;
  }
  if (next) shared.changed.notify_one();
  return shared.last_number;
}

void DeadlineTimer::Cancel(int64_t number) noexcept {
  if (number == 0) return;
  std::function<void()> forgotten;  // destroyed after unlocking
  const std::lock_guard lock(shared_->mutex);
  const auto found = shared_->by_number.find(number);
  if (found == shared_->by_number.end()) return;
  forgotten.swap(found->second->second.call);
  shared_->alarms.erase(found->second);
  shared_->by_number.erase(found);
}

void DeadlineTimer::Loop(const std::shared_ptr<Shared>& shared) noexcept {
  std::unique_lock lock(shared->mutex);
  while (!shared->stopping) {
    if (shared->alarms.empty()) {
      shared->changed.wait(lock);
      continue;
    }
    const auto next = shared->alarms.begin();
    if (const Clock::time_point when = next->first; Clock::now() < when) {
      shared->changed.wait_until(lock, when);  // a copy: the alarm may go while we wait
      continue;
    }
    std::function<void()> call = std::move(next->second.call);
    shared->by_number.erase(next->second.number);
    shared->alarms.erase(next);
    lock.unlock();
    call();
    call = nullptr;  // what it holds goes before the lock is taken again
    lock.lock();
  }
}

}  // namespace raggrad::batching
