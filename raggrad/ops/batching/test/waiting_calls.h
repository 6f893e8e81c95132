// Calls that wait, for the tests of callbacks and of the runtime's destructor.
#pragma once

#include <chrono>
#include <thread>

#include "raggrad/ops/batching/test/test_calls.h"

namespace raggrad::testing {

inline constexpr auto kForEver = std::chrono::seconds(20);  // a test that waits this long has failed
inline constexpr WaitTime kSoon = std::chrono::milliseconds(20);

// An owner that waits for piece `id` + 1, which never comes.
inline GradOperands Waiter(int64_t id, WaitTime timeout) {
  GradOperands owner(id, FloatPiece(1, 2, 0), {id, id + 1});
  owner.call().waiting.timeout = timeout;
  return owner;
}

// Waits until the condition holds; false if it does not within kForEver.
template <class F>
bool Eventually(const F& condition) {
  const auto end = std::chrono::steady_clock::now() + kForEver;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace raggrad::testing
