#include "raggrad/ops/batching/cancellation.h"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "raggrad/core/fork.h"

namespace raggrad {

struct Cancellation::State {
  const int fork_generation = ForkGeneration();
  std::atomic<bool> cancelled{false};  // written under the lock
  std::mutex mutex;
  int64_t last_number = 0;
  std::map<int64_t, std::function<void()>> callbacks;
};

Cancellation::Cancellation() : state_(std::make_shared<State>()) {}

void Cancellation::Cancel() const noexcept {
  if (state_->fork_generation != ForkGeneration()) return;
  std::map<int64_t, std::function<void()>> callbacks;
  {
    const std::lock_guard lock(state_->mutex);
    state_->cancelled = true;
    callbacks.swap(state_->callbacks);
  }
  for (const auto& [number, callback] : callbacks) callback();
}

bool Cancellation::cancelled() const noexcept { return state_->cancelled; }

int64_t Cancellation::Notify(std::function<void()> callback) const {
  const std::lock_guard lock(state_->mutex);
  if (state_->cancelled) return 0;
  state_->callbacks.emplace(state_->last_number + 1, std::move(callback));
  return ++state_->last_number;
}

void Cancellation::Forget(int64_t number) const noexcept {
  std::function<void()> forgotten;  // destroyed after unlocking: it may hold the last reference to something
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->callbacks.find(number);
  if (found == state_->callbacks.end()) return;
  forgotten.swap(found->second);
  state_->callbacks.erase(found);
}

}  // namespace raggrad
