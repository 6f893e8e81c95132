// Times calls on this machine's GPU. For benchmarks: a fault ends the program.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "raggrad/cuda/cuda.h"
#include "raggrad/raggrad.h"

namespace raggrad::bench {

inline constexpr int kWarmUps = 5;
inline constexpr int kRuns = 20;

[[noreturn]] inline void Fail(std::string_view what) {
  std::fprintf(stderr, "gpu_bench: %.*s\n", static_cast<int>(what.size()), what.data());
  std::exit(1);
}
inline void Check(cudaError_t error) {
  if (error != cudaSuccess) Fail(cudaGetErrorString(error));
}
template <class T>
T Get(Result<T> result) {
  if (!result.ok()) Fail(result.status().message());
  return *std::move(result);
}

// Times calls on one stream.
class Stopwatch {
 public:
  Stopwatch() {
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    Check(cudaEventCreate(&begin_));
    Check(cudaEventCreate(&end_));
    ctx_.stream = stream_;
    FillPool();
  }
  const Context& ctx() const { return ctx_; }
  Context With(std::optional<Accumulation> accumulation) const {
    Context ctx = ctx_;
    ctx.accumulation = accumulation;
    return ctx;
  }

  // Reserves memory, so that no call has to ask the driver for it: a program that has run for a while does not either.
  void FillPool() const {
    constexpr size_t kBytes = size_t{4} << 30;
    Allocator& pool = *Get(CudaPool(Device::Cuda(), stream_));
    void* const memory = pool.Allocate(kBytes);
    if (memory == nullptr) Fail("no memory");
    pool.Deallocate(memory, kBytes);
  }

  // The median in milliseconds. Results are freed outside of the measured time.
  template <class F>
  double Time(const F& call) const {
    std::vector<float> times;
    for (int run = -kWarmUps; run < kRuns; ++run) {
      Check(cudaEventRecord(begin_, stream_));
      [[maybe_unused]] const auto result = Get(call(ctx_));
      Check(cudaEventRecord(end_, stream_));
      Check(cudaEventSynchronize(end_));
      if (run >= 0) Check(cudaEventElapsedTime(&times.emplace_back(), begin_, end_));
    }
    std::ranges::nth_element(times, times.begin() + kRuns / 2);
    return times[kRuns / 2];
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_, end_;
  Context ctx_;
};

// An operand in device memory.
class OnDevice {
 public:
  OnDevice(const TensorView& host, const Context& ctx) : tensor_(Get(CopyTensor(host, Device::Cuda(), ctx))) {}
  operator const TensorView&() const { return tensor_.view(); }  // NOLINT: implicit, to be passed as an argument
  MutableTensorView mutable_view() { return {tensor_.data(), tensor_.dtype(), tensor_.shape(), tensor_.view().device}; }

 private:
  Tensor tensor_;
};

}  // namespace raggrad::bench
