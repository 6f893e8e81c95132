// What objects with threads or locks need in a child of fork(): threads stay behind in the parent, and locks as they
// were. Internal to the library.
#pragma once

#include <atomic>
#include <mutex>

namespace raggrad {

// A number that is different in a child of fork(). An object that has threads remembers the number it was made under
// and, in a child, does without them: not even their ids may be touched, since the system gives them to new threads.
int ForkGeneration() noexcept;

// Holds a lock, which is a word that is 0 at first. In a child of fork() a lock is taken away from a thread that stayed
// behind in the parent, where a std::mutex would be waited for for ever.
class ForkSafeLock {
 public:
  explicit ForkSafeLock(std::atomic<int>& word) noexcept;
  ForkSafeLock(std::atomic<int>& word, std::try_to_lock_t) noexcept;
  ForkSafeLock(const ForkSafeLock&) = delete;
  ForkSafeLock& operator=(const ForkSafeLock&) = delete;
  ~ForkSafeLock();

  bool owns_lock() const noexcept { return owns_; }
  // Whether the lock was taken away: the last holder may have left half done what the lock guards.
  bool was_abandoned() const noexcept { return abandoned_; }

 private:
  // On failure `holder` is the one that has the lock.
  bool TryToTake(int& holder) noexcept;

  std::atomic<int>& word_;
  bool owns_ = false;
  bool abandoned_ = false;
};

}  // namespace raggrad
