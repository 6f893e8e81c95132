// A thread that waits for the call it made. Internal to the family.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "raggrad/ops/batching/batching.h"

namespace raggrad::batching {

// Whoever completes the call gives this thread its result, or hands it the work that leads to the result: then joining
// a large batch delays only the call that gets it, not the one that happened to bring the last piece, nor the timer.
template <class T, class Work>
class BlockedCall {
 public:
  explicit BlockedCall(const Waiting& waiting) noexcept : sleeper_(waiting.sleeper) {}

  // What the call is made with. Refers to this object, which outlives it.
  Completion<T> completion() noexcept {
    return [this](Result<T> result) { Give(result_, std::move(result)); };
  }

  void Hand(Work work) noexcept { Give(work_, std::move(work)); }

  // `finish(Work&)` does work that was handed over and ends in the completion.
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
    // Under the lock: the waiting thread destroys this object and the sleeper as soon as it can take it.
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
