// CUDA streams for tests. Made by the driver, so that tests need no CUDA to be compiled.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "raggrad/core/context.h"
#include "raggrad/testing/on_device.h"

namespace raggrad::testing {

// A function of the driver's, which must succeed.
template <class... A>
void CallDriver(const char* name, A... arguments) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(driver, nullptr) << "no CUDA driver";
  auto* const function = reinterpret_cast<int (*)(A...)>(dlsym(driver, name));
  ASSERT_NE(function, nullptr) << name;
  EXPECT_EQ(function(arguments...), 0) << name;
}

// Does not wait for the default stream, nor that for it.
class CudaStream {
 public:
  CudaStream() {
    const OnDevice binds_this_thread(TensorView::Scalar(kNumber));  // to the device; the driver alone does not
    constexpr unsigned kNonBlocking = 1;
    CallDriver("cuStreamCreate", &handle_, kNonBlocking);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() {
    if (handle_ != nullptr) CallDriver("cuStreamDestroy_v2", handle_);
  }

  void* handle() const noexcept { return handle_; }
  Context MakeContext() const noexcept {
    Context ctx;
    ctx.stream = handle_;
    return ctx;
  }

 private:
  static constexpr float kNumber = 0;
  void* handle_ = nullptr;
};

// A stream that does nothing of what is queued on it until it is released, or ten seconds have passed.
class BlockedStream {
 public:
  BlockedStream() { CallDriver("cuLaunchHostFunc", stream_.handle(), &Wait, static_cast<void*>(this)); }
  BlockedStream(const BlockedStream&) = delete;
  BlockedStream& operator=(const BlockedStream&) = delete;
  ~BlockedStream() {
    Release();
    CallDriver("cuStreamSynchronize", stream_.handle());
  }

  Context MakeContext() const noexcept { return stream_.MakeContext(); }
  bool blocked() const noexcept { return blocked_; }
  void Release() { blocked_ = false; }

 private:
  static void Wait(void* stream) {
    auto& blocked = static_cast<BlockedStream*>(stream)->blocked_;
    for (int i = 0; i < 1000 && blocked; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    blocked = false;
  }

  std::atomic<bool> blocked_{true};
  CudaStream stream_;
};

}  // namespace raggrad::testing
