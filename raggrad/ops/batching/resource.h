// What the three kinds of resource have in common: counters, limits, deadlines, cancellation. Internal to the family.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "raggrad/core/error_text.h"
#include "raggrad/ops/batching/aged_pieces.h"
#include "raggrad/ops/batching/batching.h"
#include "raggrad/ops/batching/deadline_timer.h"
#include "raggrad/ops/batching/turn.h"

namespace raggrad::batching {

// Surroundings that all resources of a runtime share.
struct Environment {
  Context ctx;
  DeadlineTimer timer;
  Cancellers cancellers;
};

struct Counters {
  std::atomic<int64_t> calls{0}, succeeded{0}, failed{0}, cancelled{0}, deadline_exceeded{0}, refused{0},
      pieces_expired{0}, pieces_dropped{0};
};

// What ends a wait besides its result. Armed while the call waits.
struct Alarm {
  int64_t deadline = 0;  // of the timer; 0: none
  std::optional<Cancellation> token;
  int64_t token_number = 0;
};

class Resource : public std::enable_shared_from_this<Resource> {
 public:
  Resource(std::shared_ptr<Environment> environment, std::string_view op, const ResourceLimits& limits)
      : environment_(std::move(environment)), op_(op), limits_(limits) {}
  virtual ~Resource() = default;

  // Ends all waits with CANCELLED and drops all pieces. Later calls on this object are told to look again.
  virtual void Close() noexcept = 0;

  ResourceStatistics Statistics() const noexcept;
  ResourceLimits Limits() const noexcept;
  void SetLimits(const ResourceLimits& limits) noexcept;

 protected:
  // Drops the pieces that nobody has asked for in time, if there are such pieces. Without the lock.
  virtual void DropOldPieces() noexcept {}

  // Under the lock or not. Alarms that went off already find no wait to end.
  void Disarm(Alarm& alarm) noexcept;

  // Under the lock: pieces that become too old will be dropped. One alarm for all of them, those that come now
  // included. `pieces` is the resource's. May throw std::bad_alloc or std::system_error.
  template <class Piece>
  void WatchAges(AgedPieces<Piece>& pieces);
  // Those that are too old, for the caller to destroy. Without the lock.
  template <class Piece>
  typename AgedPieces<Piece>::Entries TakeExpired(AgedPieces<Piece>& pieces) noexcept;

  // Under the lock: a piece comes or goes.
  void CountIn(int64_t bytes) noexcept { ++pieces_, bytes_ += bytes; }
  void CountOut(int64_t bytes) noexcept { --pieces_, bytes_ -= bytes; }
  // Under the lock: RESOURCE_EXHAUSTED if that much more is too much.
  Status CheckRoom(int64_t pieces, int64_t bytes, bool waits) const noexcept;

  // Counts the result and hands it to the caller. Without the lock. When it returns, nothing of `done` is left; what
  // the caller has to destroy beside it goes before, as `done` may destroy the runtime.
  template <class T>
  void Finish(Completion<T> done, Result<T> result) noexcept {
    Count(result.status());
    if (!result.ok()) result = Named(op_, result.status());
    done(std::move(result));
  }

  Status NoMemory() const noexcept { return MakeError(Code::kResourceExhausted, op_, ": no memory to keep the call"); }
  Status Cancelled() const noexcept { return MakeError(Code::kCancelled, op_, ": the call was cancelled"); }
  Status TimedOut() const noexcept {
    return MakeError(Code::kDeadlineExceeded, op_, ": Batched data did not arrive within timeout window.");
  }
  Status Closed() const noexcept { return MakeError(Code::kCancelled, op_, ": the resource was closed"); }

  const std::shared_ptr<Environment> environment_;
  const std::string_view op_;
  Counters counters_;
  mutable std::mutex mutex_;
  ResourceLimits limits_;  // from here on guarded by mutex_
  int64_t pieces_ = 0;
  int64_t bytes_ = 0;
  int64_t waiters_ = 0;
  int64_t last_ticket_ = 0;
  bool closed_ = false;
  int64_t age_alarm_ = 0;  // of the timer; 0: none

 private:
  template <class Piece>
  class AgeAlarm;

  void Count(const Status& status) noexcept;
};

// The pieces that are too old are found on the watcher and destroyed on a helper: that is code of the user's.
template <class Piece>
class Resource::AgeAlarm final : public TimerAlarm {
 public:
  AgeAlarm(std::weak_ptr<Resource> resource, AgedPieces<Piece>& pieces) noexcept
      : resource_(std::move(resource)), pieces_(pieces) {}

  bool Decide() noexcept override {
    const std::shared_ptr<Resource> resource = resource_.lock();
    if (resource) expired_ = resource->TakeExpired(pieces_);
    return !expired_.empty();
  }
  void CarryOut() noexcept override { expired_.clear(); }

 private:
  const std::weak_ptr<Resource> resource_;
  AgedPieces<Piece>& pieces_;  // of the resource
  typename AgedPieces<Piece>::Entries expired_;
};

template <class Piece>
void Resource::WatchAges(AgedPieces<Piece>& pieces) {
  const auto when = After(pieces.empty() ? Clock::now() : pieces.oldest().since, limits_.max_piece_age);
  if (age_alarm_ != 0 || !when) return;
  age_alarm_ = environment_->timer.Set(*when, std::make_unique<AgeAlarm<Piece>>(weak_from_this(), pieces));
}

template <class Piece>
typename AgedPieces<Piece>::Entries Resource::TakeExpired(AgedPieces<Piece>& pieces) noexcept {
  typename AgedPieces<Piece>::Entries expired;
  const std::lock_guard lock(mutex_);
  environment_->timer.Cancel(std::exchange(age_alarm_, 0));  // gone already, unless it was set anew meanwhile
  if (!After(Clock::now(), limits_.max_piece_age)) return expired;
  expired = pieces.TakeUntil(Clock::now() - std::max(limits_.max_piece_age, WaitTime::zero()));
  for (const auto& entry : expired) CountOut(entry.bytes);
  counters_.pieces_expired += static_cast<int64_t>(expired.size());
  try {
    if (!pieces.empty()) WatchAges(pieces);
  } catch (const std::exception&) {  // no memory: the next piece sets the alarm again
  }
  return expired;
}

// A resource in which calls wait. Ending: all that is left to do for a call whose wait is over.
template <class Ending>
class WaitingResource : public Resource {
 public:
  using Resource::Resource;

  // Completes the call: runs code of the user's. Without the lock.
  virtual void Conclude(Ending& ending) noexcept = 0;

 protected:
  // The wait named (key, ticket) is over for another reason than its result. True if the ending has to be concluded;
  // false if it was over already, or if the call's own thread waits for it and has been told. Without the lock; runs no
  // code of the user's.
  virtual bool TakeWait(int64_t key, int64_t ticket, Status why, Ending& ending) noexcept = 0;

  // Under the lock. Sets the deadline and listens to the token. False if the token is cancelled already. May throw
  // std::bad_alloc or std::system_error; then nothing is armed.
  bool Arm(Alarm& alarm, const Waiting& waiting, int64_t key, int64_t ticket);

 private:
  class Deadline;

  static std::shared_ptr<WaitingResource> Lock(const std::weak_ptr<Resource>& resource) noexcept {
    return std::static_pointer_cast<WaitingResource>(resource.lock());
  }
};

template <class Ending>
class WaitingResource<Ending>::Deadline final : public TimerAlarm {
 public:
  Deadline(std::weak_ptr<Resource> resource, int64_t key, int64_t ticket) noexcept
      : weak_(std::move(resource)), key_(key), ticket_(ticket) {}

  bool Decide() noexcept override {
    resource_ = Lock(weak_);
    return resource_ && resource_->TakeWait(key_, ticket_, resource_->TimedOut(), ending_);
  }
  void CarryOut() noexcept override { resource_->Conclude(ending_); }

 private:
  const std::weak_ptr<Resource> weak_;
  const int64_t key_, ticket_;
  std::shared_ptr<WaitingResource> resource_;
  Ending ending_;
};

template <class Ending>
bool WaitingResource<Ending>::Arm(Alarm& alarm, const Waiting& waiting, int64_t key, int64_t ticket) {
  const std::weak_ptr<Resource> self = weak_from_this();
  if (const auto deadline = After(Clock::now(), waiting.timeout.value_or(limits_.default_timeout))) {
    alarm.deadline = environment_->timer.Set(*deadline, std::make_unique<Deadline>(self, key, ticket));
  }
  if (!waiting.cancellation) return true;
  alarm.token = waiting.cancellation;
  try {
    alarm.token_number = alarm.token->Notify([self, key, ticket] {
      const std::shared_ptr<WaitingResource> resource = Lock(self);
      if (!resource) return;
      const CancelGuard guard(resource->environment_->cancellers);  // until all of the ending is gone
      Ending ending;
      if (resource->TakeWait(key, ticket, resource->Cancelled(), ending)) resource->Conclude(ending);
    });
  } catch (...) {
    Disarm(alarm);
    throw;
  }
  if (alarm.token_number != 0) return true;
  Disarm(alarm);
  return false;
}

}  // namespace raggrad::batching
