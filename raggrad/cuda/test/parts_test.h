// Fixture and helpers of tests that call parts of the CUDA library, and CUDA's runtime, directly.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "raggrad/cuda/errors.cuh"

namespace raggrad::cuda {

// Skipped where there is no GPU.
class PartsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const cudaError_t error = cudaGetDeviceCount(&devices_);
    if (error == cudaSuccess && devices_ > 0) return;
    Ignore(error);
    GTEST_SKIP() << "there are no kernels for this device: " << cudaGetErrorString(error);
  }
  void TearDown() override {
    if (devices_ > 0) {
      EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the next call would report this error";
    }
  }

  int devices() const noexcept { return devices_; }

 private:
  int devices_ = 0;
};

inline void Check(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

// A stream that does not wait for the default stream.
class TestStream {
 public:
  TestStream() { Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  ~TestStream() {
    Check(cudaStreamSynchronize(stream_));
    Check(cudaStreamDestroy(stream_));
  }
  operator cudaStream_t() const noexcept { return stream_; }  // NOLINT: implicit, to be passed as an argument

 private:
  cudaStream_t stream_ = nullptr;
};

// Holds a stream: later work on it waits until the gate is opened, at most ten seconds. Must outlive that work.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) {
    Check(cudaLaunchHostFunc(
        stream, [](void* gate) { static_cast<Gate*>(gate)->Wait(); }, this));
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void Open() noexcept { open_ = true; }
  bool open() const noexcept { return open_; }
  // Opens the gate from another thread, after 50 ms.
  std::jthread OpenSoon() noexcept {
    return std::jthread([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      Open();
    });
  }

 private:
  void Wait() const {
    for (int i = 0; i < 1000 && !open_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  std::atomic<bool> open_{false};
};

}  // namespace raggrad::cuda
