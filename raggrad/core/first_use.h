// FirstUse<T>: an object that the process has one of, made on first use and never destroyed. Internal to the library.
//
//   static constinit FirstUse<Thing> thing;
//   return thing.Get([] { return Thing(...); });
//
// A function's static object would be destroyed while other static objects still call the library. And if another
// thread of the parent was making it during fork(), the child would wait for it for ever.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>

#include "raggrad/core/fork.h"

namespace raggrad {

template <class T>
class FirstUse {
 public:
  // Returns the object, which the first call makes with make(). If make() throws, the next call tries again.
  template <class Make>
  T& Get(const Make& make) {
    if (!made_.load(std::memory_order_acquire)) {
      const ForkSafeLock lock(word_);
      if (!made_.load(std::memory_order_relaxed)) {
        new (storage_) T(make());
        made_.store(true, std::memory_order_release);
      }
    }
    return *std::launder(reinterpret_cast<T*>(storage_));
  }

 private:
  std::atomic<bool> made_{false};
  std::atomic<int> word_{0};
  alignas(T) std::byte storage_[sizeof(T)]{};
};

}  // namespace raggrad
