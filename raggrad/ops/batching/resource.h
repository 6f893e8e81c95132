// The base of the three kinds of resource: counters, limits, deadlines, cancellation. Internal to the family.
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
#include "raggrad/ops/batching/batching.h"
#include "raggrad/ops/batching/pieces/aged_pieces.h"
#include "raggrad/ops/batching/waiting/deadline_timer.h"
#include "raggrad/ops/batching/waiting/turn.h"

namespace raggrad::batching {

// State that all resources of a runtime share.
struct Environment {
  Context ctx;
  DeadlineTimer timer;
  Cancellers cancellers;
};

struct Counters {
  std::atomic<int64_t> calls{0}, succeeded{0}, failed{0}, cancelled{0}, deadline_exceeded{0}, refused{0},
      pieces_expired{0}, pieces_dropped{0};
};

// A deadline and a cancellation token, armed while a call waits. Either may end the wait before its result.
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

  // Ends all waits with CANCELLED and drops all pieces. Calls that reach this object later return false, and the
  // runtime looks for the resource again.
  virtual void Close() noexcept = 0;

  ResourceStatistics Statistics() const noexcept;
  ResourceLimits Limits() const noexcept;
  void SetLimits(const ResourceLimits& limits) noexcept;

 protected:
  // Drops unclaimed pieces that are too old. Called without the lock.
  virtual void DropOldPieces() noexcept {}

  // Called with or without the lock. An alarm that has gone off already finds no wait to end.
  void Disarm(Alarm& alarm) noexcept;

  // Called under the lock, before a piece is added: sets one alarm for all pieces, which drops those that become too
  // old. `pieces` belongs to the resource. May throw std::bad_alloc or std::system_error.
  template <class Piece>
  void WatchAges(AgedPieces<Piece>& pieces);
  // Takes the pieces that are too old, for the caller to destroy. Called without the lock.
  template <class Piece>
  typename AgedPieces<Piece>::Entries TakeExpired(AgedPieces<Piece>& pieces) noexcept;

  // Called under the lock: a piece comes or goes.
  void CountIn(int64_t bytes) noexcept { ++pieces_, bytes_ += bytes; }
  void CountOut(int64_t bytes) noexcept { --pieces_, bytes_ -= bytes; }
  // Called under the lock: RESOURCE_EXHAUSTED if that many more would exceed a limit.
  Status CheckRoom(int64_t pieces, int64_t bytes, bool waits) const noexcept;

  // Counts the result and completes the call with it. Called without the lock. `done` may destroy the runtime: whoever
  // calls this drops everything else that belongs to the call first. `done` itself is gone when this returns.
  template <class T>
  // NOLINTNEXTLINE(performance-unnecessary-value-param): by value, so that it is gone
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

// Finds the pieces that are too old on the watcher, and destroys them on a helper: a keep-alive's destructor is the
// user's code.
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
  AgedPieces<Piece>& pieces_;  // belongs to the resource
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
  environment_->timer.Cancel(std::exchange(age_alarm_, 0));  // has gone off, unless it was set again meanwhile
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

// A resource in which calls wait. An Ending has everything needed to complete a call whose wait is over.
template <class Ending>
class WaitingResource : public Resource {
 public:
  using Resource::Resource;

  // Completes the call, which runs the user's code. Called without the lock.
  virtual void Conclude(Ending& ending) noexcept = 0;

 protected:
  // Ends the wait (key, ticket) for the reason `why`. True if the caller has to conclude `ending`. False if the wait
  // was over already, or if the call's own thread waits for it and has been told. Called without the lock; runs no code
  // of the user's.
  virtual bool TakeWait(int64_t key, int64_t ticket, Status why, Ending& ending) noexcept = 0;

  // Called under the lock. Sets the deadline and listens to the token. False if the token is cancelled already. May
  // throw std::bad_alloc or std::system_error; then nothing is armed.
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
      const CancelGuard guard(resource->environment_->cancellers);  // outlives the ending
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
