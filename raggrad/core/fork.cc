#include "raggrad/core/fork.h"

#include <pthread.h>

namespace raggrad {
namespace {

constinit std::atomic<int> generation{0};
constinit std::atomic<bool> installed{false};

constexpr int kFree = 0;

// The value of a lock's word while a thread of this process holds it.
int ThisProcess() noexcept { return ForkGeneration() + 1; }

}  // namespace

int ForkGeneration() noexcept {
  // Threads that get here at the same time may install the handler twice: the number then grows by two.
  if (!installed.load(std::memory_order_acquire)) {
    pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
    installed.store(true, std::memory_order_release);
  }
  return generation.load(std::memory_order_relaxed);
}

ForkSafeLock::ForkSafeLock(std::atomic<int>& word) noexcept : word_(word) {
  for (int holder = kFree; !TryToTake(holder);) word_.wait(holder, std::memory_order_relaxed);
}

ForkSafeLock::ForkSafeLock(std::atomic<int>& word, std::try_to_lock_t) noexcept : word_(word) {
  int holder = kFree;
  TryToTake(holder);
}

ForkSafeLock::~ForkSafeLock() {
  if (!owns_) return;
  word_.store(kFree, std::memory_order_release);
  word_.notify_one();
}

bool ForkSafeLock::TryToTake(int& holder) noexcept {
  const int self = ThisProcess();
  holder = kFree;
  do {
    owns_ = word_.compare_exchange_weak(holder, self, std::memory_order_acquire, std::memory_order_relaxed);
    abandoned_ = owns_ && holder != kFree;
  } while (!owns_ && holder != self);
  return owns_;
}

}  // namespace raggrad
