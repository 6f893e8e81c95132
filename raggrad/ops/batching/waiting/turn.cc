#include "raggrad/ops/batching/waiting/turn.h"

namespace raggrad::batching {
namespace {

constinit thread_local Turn* innermost = nullptr;

}  // namespace

void Cancellers::Enter() noexcept {
  const std::lock_guard lock(mutex_);
  ++inside_;
}

void Cancellers::Leave() noexcept {
  const std::lock_guard lock(mutex_);
  --inside_;
  left_.notify_all();
}

void Cancellers::AwaitOthers(int64_t own) noexcept {
  std::unique_lock lock(mutex_);
  left_.wait(lock, [&] { return inside_ <= own; });
}

Turn::Turn(const Cancellers& runtime, const void* rest, void (*call)(const void*)) noexcept
    : runtime_(&runtime), rest_(rest), call_(call), outer_(innermost) {
  if (outer_ != nullptr) outer_->inner_ = this;
  innermost = this;
}

Turn::~Turn() {
  if (outer_ != nullptr) outer_->inner_ = inner_;
  (inner_ != nullptr ? inner_->outer_ : innermost) = outer_;
}

void Turn::FinishOwn(const Cancellers& runtime) noexcept {
  for (const Turn* turn = innermost; turn != nullptr; turn = turn->outer_) {
    if (turn->runtime_ == &runtime && turn->call_ != nullptr) turn->call_(turn->rest_);
  }
}

int64_t Turn::CountGuards(const Cancellers& runtime) noexcept {
  int64_t guards = 0;
  for (const Turn* turn = innermost; turn != nullptr; turn = turn->outer_) {
    if (turn->runtime_ == &runtime && turn->call_ == nullptr) ++guards;
  }
  return guards;
}

}  // namespace raggrad::batching
