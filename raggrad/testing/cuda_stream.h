// CUDA streams for tests, made through the driver, so that tests compile without CUDA.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "raggrad/core/context.h"
#include "raggrad/testing/on_device.h"

namespace raggrad::testing {

// Calls a function of the driver, which must succeed.
template <class... A>
void CallDriver(const char* name, A... arguments) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(driver, nullptr) << "no CUDA driver";
  auto* const function = reinterpret_cast<int (*)(A...)>(dlsym(driver, name));
  ASSERT_NE(function, nullptr) << name;
  EXPECT_EQ(function(arguments...), 0) << name;
}

class CudaStream {
 public:
  enum Kind : unsigned {
    kBlocking = 0,     // waits for the default stream, and the default stream for it
    kNonBlocking = 1,  // neither waits
  };
  explicit CudaStream(Kind kind = kNonBlocking) {
    const OnDevice binds_this_thread(TensorView::Scalar(kNumber));  // to the device; the driver alone does not
    CallDriver("cuStreamCreate", &handle_, static_cast<unsigned>(kind));
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() {
    if (handle_ != nullptr) CallDriver("cuStreamDestroy_v2", handle_);
  }

  void* handle() const noexcept { return handle_; }
  Context MakeContext() const noexcept { return ContextOf(handle_); }
  static Context ContextOf(void* handle) noexcept {
    Context ctx;
    ctx.stream = handle;
    return ctx;
  }

 private:
  static constexpr float kNumber = 0;
  void* handle_ = nullptr;
};

// The handle that means a different stream in every thread.
inline void* const kStreamPerThread = reinterpret_cast<void*>(2);

// Blocks a stream: work that is queued on it waits until Release(), the destructor, or ten seconds have passed.
class Blocker {
 public:
  explicit Blocker(void* stream) : stream_(stream) {
    CallDriver("cuLaunchHostFunc", stream, &Wait, static_cast<void*>(this));
  }
  Blocker(const Blocker&) = delete;
  Blocker& operator=(const Blocker&) = delete;
  ~Blocker() {  // must be called by the thread that made it
    Release();
    CallDriver("cuStreamSynchronize", stream_);
  }

  bool blocked() const noexcept { return blocked_; }
  void Release() { blocked_ = false; }

 private:
  static void Wait(void* blocker) {
    auto& blocked = static_cast<Blocker*>(blocker)->blocked_;
    for (int i = 0; i < 1000 && blocked; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    blocked = false;
  }

  std::atomic<bool> blocked_{true};
  void* const stream_;
};

// A new stream that is blocked.
class BlockedStream {
 public:
  Context MakeContext() const noexcept { return stream_.MakeContext(); }
  bool blocked() const noexcept { return blocker_.blocked(); }
  void Release() { blocker_.Release(); }

 private:
  CudaStream stream_;
  Blocker blocker_{stream_.handle()};
};

}  // namespace raggrad::testing
