// Cancellation: a token that ends waiting calls early. Copies name the same token; all functions are thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#pragma GCC visibility push(default)
namespace raggrad {

class Cancellation {
 public:
  Cancellation();  // may throw std::bad_alloc

  // Calls that wait with this token end with CANCELLED; so does every later call that would wait. Callbacks run on this
  // thread before Cancel returns. Does nothing in a child of fork() if the token was made before.
  void Cancel() const noexcept;
  bool cancelled() const noexcept;

  // For the library: `callback` runs once, on cancellation. Returns a number for Forget, or 0 if it is cancelled
  // already (then the callback never runs). May throw std::bad_alloc.
  int64_t Notify(std::function<void()> callback) const;
  // The callback goes. A Cancel that is under way may still call it.
  void Forget(int64_t number) const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace raggrad
#pragma GCC visibility pop
