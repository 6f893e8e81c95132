// Checks that results have the same bits on every run, alone and beside other work of the GPU.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "raggrad/testing/cuda_stream.h"

namespace raggrad::testing {

// Keeps a stream busy while it lives: another thread copies 64 MiB in device memory and calls work(ctx) in a loop.
class BusyStream {
 public:
  explicit BusyStream(std::function<void(const Context&)> work)
      : work_(std::move(work)), thread_([this](const std::stop_token& stop) { Work(stop); }) {
    rounds_.wait(0);
  }

  int64_t rounds() const noexcept { return rounds_; }

 private:
  void Work(const std::stop_token& stop) {
    const CudaStream stream;
    const Context ctx = stream.MakeContext();
    const OnDevice block(TensorView::Vector<uint8_t>(std::vector<uint8_t>(size_t{64} << 20)), ctx);
    do {
      const Result<Tensor> copy = CopyTensor(block, Device::Cuda(), ctx);
      EXPECT_TRUE(copy.ok()) << copy.status().message();
      work_(ctx);
      ++rounds_;
      rounds_.notify_all();
    } while (!stop.stop_requested());
  }

  const std::function<void(const Context&)> work_;
  std::atomic<int64_t> rounds_{0};
  std::jthread thread_;  // the last member, because it uses the others
};

// Calls run(ctx) -> Result<X> 20 times on the default stream, then 20 times on another one while a BusyStream does the
// same. The views tensors(X) must have the same bits every time.
template <class Run, class Tensors>
void ExpectAlwaysTheSame(const Run& run, const Tensors& tensors) {
  constexpr int kRuns = 20;
  const auto results = [&](const Context& ctx) {
    std::vector<Tensor> copies;
    const auto result = run(ctx);
    EXPECT_TRUE(result.ok()) << result.status().message();
    if (!result.ok()) return copies;
    for (const TensorView& view : tensors(*result)) copies.push_back(OnHost(view, ctx));
    return copies;
  };
  const auto bytes = [](const Tensor& tensor) {
    return std::string_view(tensor.bytes() == 0 ? "" : tensor.As<char>(), tensor.bytes());
  };
  const std::vector<Tensor> first = results({});
  const auto again = [&](const Context& ctx) {
    const std::vector<Tensor> got = results(ctx);
    ASSERT_EQ(got.size(), first.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(got[i].shape() == first[i].shape());
      ASSERT_TRUE(bytes(got[i]) == bytes(first[i])) << "tensor " << i;
    }
  };
  for (int i = 0; i < kRuns; ++i) {
    SCOPED_TRACE("run " + std::to_string(i));
    again({});
  }
  const CudaStream stream;
  const BusyStream busy(again);
  const int64_t enough_rounds = busy.rounds() + 3;
  for (int i = 0; i < kRuns || busy.rounds() < enough_rounds; ++i) {
    SCOPED_TRACE("beside other work, run " + std::to_string(i));
    again(stream.MakeContext());
  }
}

// The same for operators with one result.
template <class Run>
void ExpectAlwaysTheSame(const Run& run) {
  ExpectAlwaysTheSame(run, [](const Tensor& tensor) { return std::vector{tensor.view()}; });
}

}  // namespace raggrad::testing
