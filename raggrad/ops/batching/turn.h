// What a thread is about in a runtime, in case somebody destroys the runtime meanwhile. Internal to the family.
//
// A callback may destroy the runtime that calls it. The destructor then stands on top of functions of the runtime that
// have more calls to complete, and whose caller may take its allocator away as soon as the destructor returns. So every
// function that runs callbacks makes a Turn, which says what it has left to do, and the destructor does that first.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace raggrad::batching {

// The threads that a runtime cannot see otherwise: those that cancel its calls. One per runtime.
class Cancellers {
 public:
  void Enter() noexcept;
  void Leave() noexcept;
  // Returns when only `own` guards, those of the calling thread, are left.
  void AwaitOthers(int64_t own) noexcept;

 private:
  std::mutex mutex_;
  std::condition_variable left_;
  int64_t inside_ = 0;
};

class Turn {
 public:
  // `rest()` runs callbacks until there are none left. Called from one of them it goes on with the next, and then finds
  // nothing left when that one returns. Costs a few nanoseconds.
  template <class Rest>
  Turn(const Cancellers& runtime, const Rest& rest) noexcept
      : Turn(runtime, &rest, [](const void* object) { (*static_cast<const Rest*>(object))(); }) {}
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Does what the turns of this thread in that runtime have left, the latest first.
  static void FinishOwn(const Cancellers& runtime) noexcept;

 protected:
  Turn(const Cancellers& runtime, const void* rest, void (*call)(const void*)) noexcept;

  static int64_t CountGuards(const Cancellers& runtime) noexcept;

 private:
  const Cancellers* const runtime_;
  const void* const rest_;
  void (*const call_)(const void*);  // null: a CancelGuard
  Turn* outer_;
  Turn* inner_ = nullptr;  // fibers of one thread may leave in any order
};

// Of a thread that cancels a call: the destructor waits for it to leave. Whoever makes one keeps the runtime's
// Environment alive.
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
