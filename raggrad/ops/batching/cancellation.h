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

  // Ends all calls that wait with this token with CANCELLED, and every later call that would have to wait. Their
  // callbacks run on this thread before Cancel returns. In a child of fork(), a token of the parent does nothing.
  void Cancel() const noexcept;
  bool cancelled() const noexcept;

  // For the library: `callback` runs once, on cancellation. Returns a number for Forget; 0 if the token is cancelled
  // already, and then the callback never runs. May throw std::bad_alloc.
  int64_t Notify(std::function<void()> callback) const;
  // Removes the callback. A Cancel that has begun already may still call it.
  void Forget(int64_t number) const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace raggrad
#pragma GCC visibility pop
