// What every kernel launch needs: the stream, device memory, errors. For the host side of .cu files.
//
//   const Result<UncapturedCall> call = UncapturedCall::Begin(ctx);
//   auto keys = Scratch<uint32_t>::Make(call->ctx, n);                       // device memory
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
  Context ctx;  // its allocator gives device memory
  cudaStream_t stream;
  StreamId stream_id;
  bool starts_early;  // a kernel can be started before the one before it has ended
  bool own_pool;      // the allocator is the default: it does not mind what becomes of its memory

  // INVALID_ARGUMENT if the stream is of another device than the current one.
  static Result<Call> Begin(const Context& ctx) noexcept;

  template <class... Parameters, class... Arguments>
  Status Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments&&... arguments) const noexcept {
    kernel<<<grid, block, 0, stream>>>(std::forward<Arguments>(arguments)...);
    return ToStatus(cudaGetLastError(), "a kernel could not be started");
  }

  // The same with `shared` bytes of DynamicShared(), for a kernel that may be started before the one before it has
  // ended, and waits for that by itself (AwaitKernelBefore). Saves 1 to 3 microseconds.
  template <class... Parameters, class... Arguments>
  Status LaunchEarly(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                     Arguments&&... arguments) const noexcept {
    constexpr size_t kSharedWithoutAsking = 48 << 10;
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

  // Runs one of CUB's algorithms, which says how much working memory it needs when it is called without:
  //   call.RunCub([&](void* memory, size_t& bytes) { return cub::DeviceScan::ExclusiveSum(memory, bytes, ...); });
  template <class F>
  Status RunCub(const F& algorithm) const noexcept {
    size_t bytes = 0;
    if (Status s = ToStatus(algorithm(nullptr, bytes), "CUB refused a size"); !s.ok()) return s;
    const auto memory = Scratch<char>::Make(ctx, static_cast<int64_t>(std::max<size_t>(bytes, 1)));
    if (!memory.ok()) return memory.status();
    return ToStatus(algorithm(const_cast<char*>(memory->data()), bytes), "CUB could not be started");
  }
};

// A call that waits for its stream or has it read what this call wrote to host memory, which a graph would read again
// and again. An operator that needs one asks for it before it queues anything: what is being captured then stays whole.
struct UncapturedCall : Call {
  // INVALID_ARGUMENT if the stream is being captured.
  static Result<UncapturedCall> Begin(const Context& ctx) noexcept;
  static Result<UncapturedCall> From(const Call& call) noexcept;

  // Copies words to the host and waits for the stream. At most kWords of pinned_words.cuh.
  Status ReadBack(const uint64_t* device, std::span<uint64_t> host) const noexcept;

  // Waits until a kernel of the stream has written `token` to `word` in pinned memory. Faster than waiting for the
  // stream; what the kernel wrote before can be read then.
  Status Await(const uint64_t& word, uint64_t token) const noexcept;

  // Waits for all that has been queued. `what` has gone wrong if a kernel has failed.
  Status AwaitAll(const char* what) const noexcept { return ToStatus(cudaStreamSynchronize(stream), what); }
};

// As raggrad::AllocateOutput, in device memory.
Result<Tensor> AllocateOutput(const Call& call, int index, DType dtype, Shape shape) noexcept;

}  // namespace raggrad::cuda
