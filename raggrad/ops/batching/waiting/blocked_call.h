// BlockedCall: a thread that waits for the call it made. Internal to the family.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "raggrad/ops/batching/batching.h"

namespace raggrad::batching {

// Whoever completes the call gives this thread the result, or hands it the work that makes the result. So joining a
// large batch delays only the call that gets it, not the call that brought the last piece, nor the timer.
template <class T, class Work>
class BlockedCall {
 public:
  explicit BlockedCall(const Waiting& waiting) noexcept : sleeper_(waiting.sleeper) {}

  // The completion to make the call with. It refers to this object, which outlives it.
  Completion<T> completion() noexcept {
    return [this](Result<T> result) { Give(result_, std::move(result)); };
  }

  void Hand(Work work) noexcept { Give(work_, std::move(work)); }

  // Waits for the result. `finish(Work&)` does the work if it was handed over, and must call the completion.
  template <class F>
  Result<T> Wait(const F& finish) noexcept {
    std::unique_lock lock(mutex_);
    const auto ended = [this] { return result_ || work_; };
    if (sleeper_ != nullptr && !ended()) {
      asleep_ = true;
      lock.unlock();
      sleeper_->Sleep();
      lock.lock();
    }
    changed_.wait(lock, ended);
    if (!result_) {
      lock.unlock();
      finish(*work_);
      lock.lock();
    }
    return *std::move(result_);
  }

 private:
  template <class V>
  void Give(std::optional<V>& place, V value) noexcept {
    const std::lock_guard lock(mutex_);
    place = std::move(value);
    // Still under the lock: once the waiting thread gets it, it destroys this object and the sleeper.
    if (std::exchange(asleep_, false)) sleeper_->Wake();
    changed_.notify_one();
  }

  Sleeper* const sleeper_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Result<T>> result_;
  std::optional<Work> work_;
  bool asleep_ = false;  // the sleeper was told to sleep and not yet to wake
};

}  // namespace raggrad::batching
