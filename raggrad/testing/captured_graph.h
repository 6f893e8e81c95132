// A CUDA graph, for tests of calls that can be captured.
//
//   CapturedGraph graph;
//   auto result = graph.Capture([&](const Context& ctx) { return Operator(..., ctx); });
//   graph.Overwrite(operand, host_values);
//   graph.Replay();
#pragma once

#include <cstdint>
#include <vector>

#include "raggrad/testing/cuda_stream.h"

namespace raggrad::testing {

// Hands out parts of one block of device memory: memory that a captured call takes from CUDA does not outlive the
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
  CapturedGraph() = default;
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  ~CapturedGraph() {
    if (runnable_ != nullptr) CallDriver("cuGraphExecDestroy", runnable_);
    if (graph_ != nullptr) CallDriver("cuGraphDestroy", graph_);
  }

  // Calls f(ctx), whose work goes into the graph instead of being run.
  template <class F>
  auto Capture(const F& f) {
    Context ctx = stream_.MakeContext();
    ctx.device_allocator = &arena_;
    constexpr int kThreadLocal = 1;
    CallDriver("cuStreamBeginCapture_v2", stream_.handle(), kThreadLocal);
    auto result = f(ctx);
    CallDriver("cuStreamEndCapture", stream_.handle(), &graph_);
    CallDriver("cuGraphInstantiateWithFlags", &runnable_, graph_, 0ULL);
    return result;
  }

  // Copies `host` to `device` before the next Replay.
  void Overwrite(const TensorView& device, const TensorView& host) {
    const size_t bytes = static_cast<size_t>(host.shape.NumElements().value_or(0)) * DTypeSize(host.dtype);
    CallDriver("cuMemcpyHtoDAsync_v2", reinterpret_cast<uint64_t>(device.data), host.data, bytes, stream_.handle());
  }

  // Runs the graph and waits for it.
  void Replay() {
    CallDriver("cuGraphLaunch", runnable_, stream_.handle());
    CallDriver("cuStreamSynchronize", stream_.handle());
  }

 private:
  CudaStream stream_;
  DeviceArena arena_{size_t{1} << 24};
  void* graph_ = nullptr;
  void* runnable_ = nullptr;
};

}  // namespace raggrad::testing
