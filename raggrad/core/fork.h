// Support for objects with threads or locks in a child of fork(), where threads are gone and locks stay as they were.
// For the library and the bindings.
#pragma once

#include <atomic>
#include <mutex>

#pragma GCC visibility push(default)
namespace raggrad {

// A number that is different in a child of fork(). An object that has threads remembers the number it was made under
// and, in a child, does without them: not even their ids may be touched, since the system gives them to new threads.
int ForkGeneration() noexcept;

// Holds a lock, which is a word that is 0 at first. A child of fork() can take a lock whose holder stayed behind in the
// parent; it would wait for a std::mutex for ever.
class ForkSafeLock {
 public:
  explicit ForkSafeLock(std::atomic<int>& word) noexcept;
  ForkSafeLock(std::atomic<int>& word, std::try_to_lock_t) noexcept;
  ForkSafeLock(const ForkSafeLock&) = delete;
  ForkSafeLock& operator=(const ForkSafeLock&) = delete;
  ~ForkSafeLock();

  bool owns_lock() const noexcept { return owns_; }
  // Whether the lock was taken from such a holder, who may have left the guarded data half changed.
  bool was_abandoned() const noexcept { return abandoned_; }

 private:
  // On failure `holder` is the one that has the lock.
  bool TryToTake(int& holder) noexcept;

  std::atomic<int>& word_;
  bool owns_ = false;
  bool abandoned_ = false;
};

}  // namespace raggrad
#pragma GCC visibility pop
