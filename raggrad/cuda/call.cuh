// One call of an operator on a GPU: its stream, device memory, launches and errors. For the host side of .cu files.
//
//   const Result<UncapturedCall> call = UncapturedCall::Begin(ctx);
//   auto keys = Scratch<uint32_t>::Make(call->device_memory(), n);
//   if (Status s = call->Launch(PrepareKernel, Blocks(n, 256), 256, arguments...); !s.ok()) return s;
//   if (Status s = call->ReadBack(device_words, host_words); !s.ok()) return s;   // the one synchronisation
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "raggrad/core/context.h"
#include "raggrad/core/error_text.h"
#include "raggrad/core/scratch.h"
#include "raggrad/cuda/errors.cuh"
#include "raggrad/cuda/stream_id.h"

namespace raggrad::cuda {

// CUDA's limit of gridDim.y.
inline constexpr int64_t kMaxGridY = 65535;

inline unsigned Blocks(int64_t items, int64_t per_block) noexcept {
  return static_cast<unsigned>(std::max<int64_t>((items + per_block - 1) / per_block, 1));
}

// Everything that a Call does can be captured in a CUDA graph.
struct Call {
  Context ctx;  // its device_allocator is not null
  cudaStream_t stream;
  StreamId stream_id;
  bool starts_early;      // a kernel may start before the kernel before it has ended
  bool takes_fewer_rows;  // an output may keep memory for more rows than it has

  // INVALID_ARGUMENT if the stream belongs to another device than the current one, which is that of the operands.
  static Result<Call> Begin(const Context& ctx) noexcept;

  Device device() const noexcept { return Device::Cuda(stream_id.device); }
  Allocator& device_memory() const noexcept { return *ctx.device_allocator; }

  template <class... Parameters, class... Arguments>
  Status Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments&&... arguments) const noexcept {
    kernel<<<grid, block, 0, stream>>>(std::forward<Arguments>(arguments)...);
    return ToStatus(cudaGetLastError(), "a kernel could not be started");
  }

  // The same with `shared` bytes of DynamicShared(), for a kernel that calls AwaitKernelBefore(): it may start while
  // the kernel before it is still running. Saves 1 to 3 microseconds.
  template <class... Parameters, class... Arguments>
  Status LaunchEarly(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                     Arguments&&... arguments) const noexcept {
    constexpr size_t kSharedWithoutAsking = 48 << 10;  // CUDA's limit
    if (shared > kSharedWithoutAsking) {
      const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
      if (Status s = ToStatus(error, "not enough shared memory"); !s.ok()) return s;
    }
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = starts_early ? 1 : 0;
    const cudaError_t error = cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
    return ToStatus(error, "a kernel could not be started");
  }

  Status Fill(void* data, int byte, size_t bytes) const noexcept {
    if (bytes == 0) return {};
    return ToStatus(cudaMemsetAsync(data, byte, bytes, stream), "memory could not be set");
  }

  // Runs one of CUB's algorithms. Called without memory, it says how many bytes it needs:
  //   call.RunCub([&](void* memory, size_t& bytes) { return cub::DeviceScan::ExclusiveSum(memory, bytes, ...); });
  template <class F>
  Status RunCub(const F& algorithm) const noexcept {
    size_t bytes = 0;
    if (Status s = ToStatus(algorithm(nullptr, bytes), "CUB refused a size"); !s.ok()) return s;
    const auto memory = Scratch<char>::Make(device_memory(), static_cast<int64_t>(std::max<size_t>(bytes, 1)));
    if (!memory.ok()) return memory.status();
    return ToStatus(algorithm(const_cast<char*>(memory->data()), bytes), "CUB could not be started");
  }
};

// A call that a CUDA graph cannot hold: it waits for its stream, or writes to host memory that the stream reads later,
// which a replayed graph would find changed. Operators begin one before they queue anything, so that a refused call
// leaves the capture intact.
struct UncapturedCall : Call {
  // INVALID_ARGUMENT if the stream is being captured.
  static Result<UncapturedCall> Begin(const Context& ctx) noexcept;
  static Result<UncapturedCall> From(const Call& call) noexcept;

  // Copies up to kWords words (pinned_words.cuh) to the host and waits for the stream.
  Status ReadBack(const uint64_t* device, std::span<uint64_t> host) const noexcept;

  // Waits until a kernel of the stream has written `token` to `word` in pinned memory. All that the kernel wrote before
  // it can then be read. Faster than waiting for the stream.
  Status Await(const uint64_t& word, uint64_t token) const noexcept;

  // Waits for all queued work. `what` begins the error message if a kernel has failed.
  Status AwaitAll(const char* what) const noexcept { return ToStatus(cudaStreamSynchronize(stream), what); }
};

// raggrad::AllocateOutput in device memory.
Result<Tensor> AllocateOutput(const Call& call, int index, DType dtype, Shape shape) noexcept;

}  // namespace raggrad::cuda
