#include <chrono>
#include <cstring>

#include "raggrad/core/version.h"
#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/early_start.cuh"
#include "raggrad/cuda/library.h"
#include "raggrad/cuda/pinned_words.cuh"
#include "raggrad/cuda/stream_pool.cuh"
#include "raggrad/cuda/streams.cuh"
#include "raggrad/cuda/tuning.h"

namespace raggrad::cuda {
namespace {

Status Start() noexcept {
  int devices = 0;
  if (Status s = ToStatus(cudaGetDeviceCount(&devices), "no GPU"); !s.ok()) return s;
  return devices > 0 ? Status() : Status(Code::kUnavailable, "no GPU");
}

Result<int> SetDevice(int number) noexcept {
  int before = 0;
  if (Status s = ToStatus(cudaGetDevice(&before), "no device"); !s.ok()) return s;
  if (before == number) return before;
  const cudaError_t error = cudaSetDevice(number);
  if (error == cudaErrorInvalidDevice) {
    Ignore(error);
    int devices = 0;
    Ignore(cudaGetDeviceCount(&devices));
    return MakeError(Code::kInvalidArgument, "there is no such GPU [device: expected cuda:0 to cuda:", devices - 1,
                     ", got ", Device::Cuda(number), "]");
  }
  if (Status s = ToStatus(error, "a device could not be used"); !s.ok()) return s;
  return before;
}

Result<Device> DeviceOf(const void* data) noexcept {
  cudaPointerAttributes attributes = {};
  if (Status s = ToStatus(cudaPointerGetAttributes(&attributes, data), "an address is unknown"); !s.ok()) return s;
  if (attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged) {
    return Status(Code::kInvalidArgument, "an address is not in device memory");
  }
  return Device::Cuda(attributes.device);
}

Result<Allocator*> Pool(void* stream) noexcept {
  const Result<StreamId> id = Identify(stream);
  if (!id.ok()) return id.status();
  return PoolOf(*id);
}

Status Copy(void* to, const void* from, size_t bytes, const Context& ctx) noexcept {
  const Result<UncapturedCall> call = UncapturedCall::Begin(ctx);
  if (!call.ok()) return call.status();
  if (bytes == 0) return {};
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, call->stream);
  if (Status s = ToStatus(error, "a tensor could not be copied"); !s.ok()) return s;
  return call->AwaitAll("a tensor could not be copied");
}

}  // namespace

extern "C" [[gnu::visibility("default")]] const Library raggrad_cuda_library = {Version(), &Start, &SetDevice,
                                                                                &DeviceOf, &Pool,  &Copy};

Result<Call> Call::Begin(const Context& ctx) noexcept {
  int device = 0;
  if (Status s = ToStatus(cudaGetDevice(&device), "no device"); !s.ok()) return s;
  const Result<StreamId> stream = Identify(ctx.stream);
  if (!stream.ok()) return stream.status();
  if (stream->device != device) {
    return MakeError(Code::kInvalidArgument,
                     "the stream is of another device [Context::stream: expected one of device ", device,
                     ", that of the operands, got one of device ", stream->device, "]");
  }
  Call call{ctx, static_cast<cudaStream_t>(ctx.stream), *stream, KernelsAwaitTheOneBefore(),
            ctx.device_allocator == nullptr || ctx.device_allocator->TakesFewerRows()};
  if (ctx.device_allocator == nullptr) {
    const Result<Allocator*> pool = PoolOf(*stream);
    if (!pool.ok()) return pool.status();
    call.ctx.device_allocator = *pool;
  }
  return call;
}

Result<UncapturedCall> UncapturedCall::Begin(const Context& ctx) noexcept {
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  return From(*call);
}

Result<UncapturedCall> UncapturedCall::From(const Call& call) noexcept {
  const Result<bool> captured = IsCaptured(call.stream);
  if (!captured.ok()) return captured.status();
  if (*captured) {
    return Status(
        Code::kInvalidArgument,
        "this call cannot be part of a CUDA graph [Context::stream: expected one that is not being captured]");
  }
  return UncapturedCall{call};
}

Status UncapturedCall::ReadBack(const uint64_t* device, std::span<uint64_t> host) const noexcept {
  uint64_t* const pinned = PinnedWords();
  if (pinned == nullptr) return Status(Code::kResourceExhausted, "CUDA: no pinned memory");
  const cudaError_t error = cudaMemcpyAsync(pinned, device, host.size_bytes(), cudaMemcpyDeviceToHost, stream);
  if (Status s = ToStatus(error, "a count could not be read"); !s.ok()) return s;
  if (Status s = AwaitAll("a kernel failed"); !s.ok()) return s;
  std::memcpy(host.data(), pinned, host.size_bytes());
  return {};
}

Status UncapturedCall::Await(const uint64_t& word, uint64_t token) const noexcept {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::microseconds(kTuning.await_max_microseconds);
  while (Clock::now() < end) {
    if (HasTokenWithin(word, token, std::chrono::microseconds(kTuning.await_microseconds_per_query))) return {};
    const cudaError_t error = cudaStreamQuery(stream);
    if (error == cudaSuccess) break;
    if (error != cudaErrorNotReady) return ToStatus(error, "a kernel failed");
    cudaGetLastError();  // clears it, or the next launch would report it
  }
  if (Status s = AwaitAll("a kernel failed"); !s.ok()) return s;
  return CheckReported(word, token);
}

Result<Tensor> AllocateOutput(const Call& call, int index, DType dtype, Shape shape) noexcept {
  return raggrad::AllocateOutput(call.device_memory(), call.device(), index, dtype, std::move(shape));
}

}  // namespace raggrad::cuda
