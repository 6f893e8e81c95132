// A CUDA graph, for tests of calls that can be captured. Uses the driver, so that tests need no CUDA to be compiled.
//
//   CapturedGraph graph;
//   auto result = graph.Capture([&](const Context& ctx) { return Operator(..., ctx); });
//   graph.Overwrite(operand, host_values);
//   graph.Replay();
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "raggrad/core/context.h"
#include "raggrad/testing/on_device.h"

namespace raggrad::testing {

// Gives away one block of device memory, piece by piece: a captured call cannot take memory from CUDA that outlives the
// graph's run.
class DeviceArena final : public Allocator {
 public:
  explicit DeviceArena(size_t bytes) : block_(TensorView::Vector<uint8_t>(std::vector<uint8_t>(bytes))), left_(bytes) {}

  void* Allocate(size_t bytes) noexcept override {
    bytes = (bytes + 255) / 256 * 256;
    if (bytes > left_) return nullptr;
    left_ -= bytes;
    return block_.tensor().As<uint8_t>() + left_;
  }
  void Deallocate(void*, size_t) noexcept override {}

 private:
  OnDevice block_;
  size_t left_;
};

class CapturedGraph {
 public:
  CapturedGraph() : driver_(dlopen("libcuda.so.1", RTLD_NOW)) {
    if (driver_ != nullptr) Call<void**, unsigned>("cuStreamCreate", &stream_, 0U);
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  ~CapturedGraph() {
    if (runnable_ != nullptr) Call<void*>("cuGraphExecDestroy", runnable_);
    if (graph_ != nullptr) Call<void*>("cuGraphDestroy", graph_);
    if (stream_ != nullptr) Call<void*>("cuStreamDestroy_v2", stream_);
  }

  bool ok() const noexcept { return stream_ != nullptr; }

  // f(ctx), which is queued in the graph instead of being run.
  template <class F>
  auto Capture(const F& f) {
    Context ctx;
    ctx.stream = stream_;
    ctx.allocator = &arena_;
    constexpr int kThreadLocal = 1;
    Call<void*, int>("cuStreamBeginCapture_v2", stream_, kThreadLocal);
    auto result = f(ctx);
    Call<void*, void**>("cuStreamEndCapture", stream_, &graph_);
    Call<void**, void*, unsigned long long>("cuGraphInstantiateWithFlags", &runnable_, graph_, 0ULL);
    return result;
  }

  void Overwrite(const TensorView& device, const TensorView& host) {
    const size_t bytes = static_cast<size_t>(host.shape.NumElements().value_or(0)) * DTypeSize(host.dtype);
    Call<uint64_t, const void*, size_t>("cuMemcpyHtoD_v2", reinterpret_cast<uint64_t>(device.data), host.data, bytes);
  }

  // Runs the graph and waits for it.
  void Replay() {
    Call<void*, void*>("cuGraphLaunch", runnable_, stream_);
    Call<void*>("cuStreamSynchronize", stream_);
  }

 private:
  template <class... A>
  void Call(const char* name, A... arguments) {
    auto* const function = reinterpret_cast<int (*)(A...)>(dlsym(driver_, name));
    ASSERT_NE(function, nullptr) << name;
    EXPECT_EQ(function(arguments...), 0) << name;
  }

  void* const driver_;
  void* stream_ = nullptr;
  void* graph_ = nullptr;
  void* runnable_ = nullptr;
  DeviceArena arena_{size_t{1} << 24};
};

}  // namespace raggrad::testing
