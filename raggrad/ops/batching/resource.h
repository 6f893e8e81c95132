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

namespace raggrad::batching {

// Surroundings that all resources of a runtime share.
struct Environment {
  Context ctx;
  DeadlineTimer timer;
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
  // The wait named (key, ticket) is over for another reason than its result. Runs without the lock.
  virtual void EndWait(int64_t key, int64_t ticket, Status why) noexcept = 0;
  // Expire() of the pieces that nobody has asked for, if there are such pieces. Runs without the lock.
  virtual void DropOldPieces() noexcept {}

  // Under the lock. Sets the deadline and listens to the token. False if the token is cancelled already. May throw
  // std::bad_alloc or std::system_error; then nothing is armed.
  bool Arm(Alarm& alarm, const Waiting& waiting, int64_t key, int64_t ticket);
  // Under the lock or not. Alarms that went off already find no wait to end.
  void Disarm(Alarm& alarm) noexcept;

  // Under the lock: DropOldPieces will be called when the oldest piece, or one that comes now, is too old. One alarm
  // for all of them. May throw as Arm does.
  template <class Piece>
  void WatchAges(const AgedPieces<Piece>& pieces) {
    SetAgeAlarm(pieces.empty() ? Clock::now() : pieces.oldest().since);
  }
  template <class Piece>
  void Expire(AgedPieces<Piece>& pieces) noexcept;

  // Under the lock: a piece comes or goes.
  void CountIn(int64_t bytes) noexcept { ++pieces_, bytes_ += bytes; }
  void CountOut(int64_t bytes) noexcept { --pieces_, bytes_ -= bytes; }
  // Under the lock: RESOURCE_EXHAUSTED if that much more is too much.
  Status CheckRoom(int64_t pieces, int64_t bytes, bool waits) const noexcept;

  // Counts the result and hands it to the caller. Without the lock.
  template <class T>
  void Finish(const Completion<T>& done, Result<T> result) noexcept {
    Count(result.status());
    if (!result.ok()) result = Named(op_, result.status());
    done(std::move(result));
  }

  Status NoMemory() const noexcept { return MakeError(Code::kResourceExhausted, op_, ": no memory to keep the call"); }
  Status Cancelled() const noexcept { return MakeError(Code::kCancelled, op_, ": the call was cancelled"); }
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
  void Count(const Status& status) noexcept;
  void SetAgeAlarm(Clock::time_point oldest);
};

template <class Piece>
void Resource::Expire(AgedPieces<Piece>& pieces) noexcept {
  typename AgedPieces<Piece>::Entries expired;  // destroyed after unlocking
  const std::lock_guard lock(mutex_);
  environment_->timer.Cancel(std::exchange(age_alarm_, 0));  // gone already, unless it was set anew meanwhile
  if (!After(Clock::now(), limits_.max_piece_age)) return;
  expired = pieces.TakeUntil(Clock::now() - std::max(limits_.max_piece_age, WaitTime::zero()));
  for (const auto& entry : expired) CountOut(entry.bytes);
  counters_.pieces_expired += static_cast<int64_t>(expired.size());
  try {
    if (!pieces.empty()) WatchAges(pieces);
  } catch (const std::exception&) {  // no memory: the next piece sets the alarm again
  }
}

}  // namespace raggrad::batching
