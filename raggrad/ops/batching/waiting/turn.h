// Turn: the callbacks that a thread has still to run, for the destructor of the runtime. Internal to the family.
//
// A callback may destroy the runtime that calls it. The destructor then runs on top of functions of the runtime that
// have more calls to complete. After it has returned they could not complete them any more: the user may destroy the
// allocator. So every function that runs callbacks makes a Turn that says what it has left to do, and the destructor
// does that first.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace raggrad::batching {

// Counts the threads that cancel calls of a runtime, which it would not know of otherwise. One per runtime.
class Cancellers {
 public:
  void Enter() noexcept;
  void Leave() noexcept;
  // Returns when only `own` guards are left, which are the calling thread's.
  void AwaitOthers(int64_t own) noexcept;

 private:
  std::mutex mutex_;
  std::condition_variable left_;
  int64_t inside_ = 0;
};

class Turn {
 public:
  // `rest()` runs callbacks until none is left. It may be called from one of them: then the inner call runs the others,
  // and the outer one finds none left. Costs a few nanoseconds.
  template <class Rest>
  Turn(const Cancellers& runtime, const Rest& rest) noexcept
      : Turn(runtime, &rest, [](const void* object) { (*static_cast<const Rest*>(object))(); }) {}
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Runs the callbacks that the turns of this thread in that runtime have left, the latest turn first.
  static void FinishOwn(const Cancellers& runtime) noexcept;

 protected:
  Turn(const Cancellers& runtime, const void* rest, void (*call)(const void*)) noexcept;

  static int64_t CountGuards(const Cancellers& runtime) noexcept;

 private:
  const Cancellers* const runtime_;
  const void* const rest_;
  void (*const call_)(const void*);  // null: a CancelGuard
  Turn* outer_;
  Turn* inner_ = nullptr;  // doubly linked, because fibers of one thread may leave in any order
};

// Held by a thread that cancels a call: the runtime's destructor waits until it is gone. Whoever makes one keeps the
// runtime's Environment alive.
class CancelGuard : Turn {
 public:
  explicit CancelGuard(Cancellers& runtime) noexcept : Turn(runtime, nullptr, nullptr), cancellers_(runtime) {
    runtime.Enter();
  }
  ~CancelGuard() { cancellers_.Leave(); }
  CancelGuard(const CancelGuard&) = delete;
  CancelGuard& operator=(const CancelGuard&) = delete;

  static void AwaitOthers(Cancellers& runtime) noexcept { runtime.AwaitOthers(CountGuards(runtime)); }

 private:
  Cancellers& cancellers_;
};

}  // namespace raggrad::batching
