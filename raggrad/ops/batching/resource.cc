#include "raggrad/ops/batching/resource.h"

namespace raggrad::batching {

ResourceStatistics Resource::Statistics() const noexcept {
  ResourceStatistics s;
  s.succeeded = counters_.succeeded;
  s.failed = counters_.failed;
  s.cancelled = counters_.cancelled;
  s.deadline_exceeded = counters_.deadline_exceeded;
  s.refused = counters_.refused;
  s.pieces_expired = counters_.pieces_expired;
  s.pieces_dropped = counters_.pieces_dropped;
  s.calls = counters_.calls;  // read last, so that it is never less than succeeded + failed
  const std::lock_guard lock(mutex_);
  s.pieces = pieces_;
  s.bytes = bytes_;
  s.waiters = waiters_;
  return s;
}

ResourceLimits Resource::Limits() const noexcept {
  const std::lock_guard lock(mutex_);
  return limits_;
}

void Resource::SetLimits(const ResourceLimits& limits) noexcept {
  {
    const std::lock_guard lock(mutex_);
    limits_ = limits;
    environment_->timer.Cancel(std::exchange(age_alarm_, 0));
  }
  DropOldPieces();  // sets the alarm again, too
}

void Resource::Disarm(Alarm& alarm) noexcept {
  environment_->timer.Cancel(std::exchange(alarm.deadline, 0));
  if (alarm.token_number != 0) alarm.token->Forget(std::exchange(alarm.token_number, 0));
}

Status Resource::CheckRoom(int64_t pieces, int64_t bytes, bool waits) const noexcept {
  const auto too_many = [this](std::string_view what, int64_t limit) {
    return MakeError(Code::kResourceExhausted, op_, ": the resource is full [", what, ": expected at most ", limit,
                     "]");
  };
  if (pieces > 0 && pieces_ + pieces > limits_.max_pieces) return too_many("pieces", limits_.max_pieces);
  if (bytes > 0 && bytes_ + bytes > limits_.max_bytes) return too_many("bytes", limits_.max_bytes);
  if (waits && waiters_ >= limits_.max_waiters) return too_many("waiting calls", limits_.max_waiters);
  return {};
}

void Resource::Count(const Status& status) noexcept {
  if (status.ok()) {
    ++counters_.succeeded;
    return;
  }
  if (status.code() == Code::kCancelled) ++counters_.cancelled;
  if (status.code() == Code::kDeadlineExceeded) ++counters_.deadline_exceeded;
  if (status.code() == Code::kResourceExhausted || status.code() == Code::kUnavailable) ++counters_.refused;
  ++counters_.failed;
}

}  // namespace raggrad::batching
