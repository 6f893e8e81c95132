#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "raggrad/core/version.h"
#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/library.h"

namespace raggrad::cuda {
namespace {

// Makes a device the current one as long as it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) noexcept {
    Ignore(cudaGetDevice(&before_));
    changed_ = before_ != device;
    if (changed_) Ignore(cudaSetDevice(device));
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() {
    if (changed_) Ignore(cudaSetDevice(before_));
  }

 private:
  int before_ = 0;
  bool changed_;
};

// A device's default pool, in the order of one stream.
class StreamPool final : public Allocator {
 public:
  StreamPool(int device, cudaStream_t stream) : device_(device), stream_(stream) {}

  void* Allocate(size_t bytes) noexcept override {
    void* memory = nullptr;
    const cudaError_t error = cudaMallocAsync(&memory, bytes, stream_);
    Ignore(error);
    return error == cudaSuccess ? memory : nullptr;
  }
  void Deallocate(void* pointer, size_t) noexcept override {
    const CurrentDevice device(device_);  // a default stream is the current device's
    Ignore(cudaFreeAsync(pointer, stream_));
  }

 private:
  const int device_;
  const cudaStream_t stream_;
};

// What was freed is kept for the next call, not given back to the system at every synchronisation, which would cost
// more than most kernels.
Status KeepFreedMemory(int device) noexcept {
  cudaMemPool_t pool = nullptr;
  uint64_t all = UINT64_MAX;
  if (Status s = ToStatus(cudaDeviceGetDefaultMemPool(&pool, device), "no memory pool"); !s.ok()) return s;
  return ToStatus(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all), "no memory pool");
}

// One for every copy of raggrad in the process that uses this library.
class Heaps {
 public:
  void Add(const Allocator& heap) {
    const std::lock_guard lock(mutex_);
    heaps_.insert(&heap);
  }
  bool Contain(const Allocator* allocator) {
    const std::lock_guard lock(mutex_);
    return heaps_.contains(allocator);
  }
  static Heaps& Known() {
    static auto& heaps = *new Heaps;
    return heaps;
  }

 private:
  std::mutex mutex_;
  std::set<const Allocator*> heaps_;
};

Status Start(const Allocator& heap) noexcept {
  try {
    Heaps::Known().Add(heap);
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "no memory to start CUDA");
  }
  int devices = 0;
  if (Status s = ToStatus(cudaGetDeviceCount(&devices), "no GPU"); !s.ok()) return s;
  return devices > 0 ? Status() : Status(Code::kUnavailable, "no GPU");
}

Result<Allocator*> PoolOf(int device, void* stream) noexcept {
  static std::mutex mutex;
  static auto& pools = *new std::map<std::pair<int, void*>, std::unique_ptr<StreamPool>>;
  try {
    const std::lock_guard lock(mutex);
    std::unique_ptr<StreamPool>& pool = pools[{device, stream}];
    if (pool != nullptr) return pool.get();
    if (Status s = KeepFreedMemory(device); !s.ok()) return s;
    pool = std::make_unique<StreamPool>(device, static_cast<cudaStream_t>(stream));
    return pool.get();
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "no memory for a pool of device memory");
  }
}

Result<Allocator*> Pool(void* stream) noexcept {
  int device = 0;
  if (Status s = ToStatus(cudaGetDevice(&device), "no device"); !s.ok()) return s;
  return PoolOf(device, stream);
}

Result<Tensor> Copy(const TensorView& from, Device to, const Context& ctx) noexcept {
  Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  Result<Tensor> copy = to == Device::kCuda ? AllocateOutput(*call, 0, from.dtype, from.shape)
                                            : raggrad::AllocateOutput(Context{}, 0, from.dtype, from.shape);
  if (!copy.ok() || copy->bytes() == 0) return copy;
  const cudaError_t error = cudaMemcpyAsync(copy->data(), from.data, copy->bytes(), cudaMemcpyDefault, call->stream);
  if (Status s = ToStatus(error, "a tensor could not be copied"); !s.ok()) return s;
  if (Status s = ToStatus(cudaStreamSynchronize(call->stream), "a tensor could not be copied"); !s.ok()) return s;
  return copy;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] const Library raggrad_cuda_library = {Version(), &Start, &Pool, &Copy};

Status ToStatus(cudaError_t error, const char* what) noexcept {
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // an error that is not sticky is reported once
  const Code code = error == cudaErrorMemoryAllocation ? Code::kResourceExhausted : Code::kInternal;
  return MakeError(code, "CUDA: ", std::string_view(what), ": ", std::string_view(cudaGetErrorString(error)));
}

uint64_t* PinnedWords() noexcept {
  struct Pinned {
    uint64_t* words = nullptr;
    ~Pinned() { Ignore(cudaFreeHost(words)); }
  };
  thread_local Pinned pinned;
  if (pinned.words == nullptr) Ignore(cudaMallocHost(&pinned.words, kWords * sizeof(uint64_t)));
  return pinned.words;
}

Result<Call> Call::Begin(const Context& ctx) noexcept {
  int device = 0, generation = 0;
  if (Status s = ToStatus(cudaGetDevice(&device), "no device"); !s.ok()) return s;
  const cudaError_t error = cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, device);
  if (Status s = ToStatus(error, "no device"); !s.ok()) return s;
  constexpr int kHopper = 9;
  Call call{ctx, static_cast<cudaStream_t>(ctx.stream), generation >= kHopper, Heaps::Known().Contain(ctx.allocator)};
  if (call.own_pool) {
    const Result<Allocator*> pool = PoolOf(device, ctx.stream);
    if (!pool.ok()) return pool.status();
    call.ctx.allocator = *pool;
  }
  return call;
}

Status Call::ReadBack(const uint64_t* device, std::span<uint64_t> host) const noexcept {
  uint64_t* const pinned = PinnedWords();
  if (pinned == nullptr) return Status(Code::kResourceExhausted, "CUDA: no pinned memory");
  const cudaError_t error = cudaMemcpyAsync(pinned, device, host.size_bytes(), cudaMemcpyDeviceToHost, stream);
  if (Status s = ToStatus(error, "a count could not be read"); !s.ok()) return s;
  if (Status s = ToStatus(cudaStreamSynchronize(stream), "a kernel failed"); !s.ok()) return s;
  std::memcpy(host.data(), pinned, host.size_bytes());
  return {};
}

Status Call::Await(const uint64_t& word, uint64_t token) const noexcept {
  constexpr int kLooks = 1000;  // some microseconds, between questions that take one each
  constexpr int kQuestions = 100;
  const auto is_there = [&] {
    return std::atomic_ref(const_cast<uint64_t&>(word)).load(std::memory_order_acquire) == token;
  };
  for (int question = 0; question < kQuestions; ++question) {
    for (int look = 0; look < kLooks; ++look) {
      if (is_there()) return {};
    }
    const cudaError_t error = cudaStreamQuery(stream);
    if (error == cudaSuccess) break;
    if (error != cudaErrorNotReady) return ToStatus(error, "a kernel failed");
    cudaGetLastError();  // or the next launch would report it
  }
  if (Status s = ToStatus(cudaStreamSynchronize(stream), "a kernel failed"); !s.ok()) return s;
  return is_there() ? Status() : Status(Code::kInternal, "CUDA: a kernel reported nothing");
}

Result<Tensor> AllocateOutput(const Call& call, int index, DType dtype, Shape shape) noexcept {
  Result<Tensor> tensor = raggrad::AllocateOutput(call.ctx, index, dtype, std::move(shape));
  if (!tensor.ok()) return tensor;
  const size_t bytes = tensor->bytes();
  const Shape& made = tensor->shape();
  return Tensor(call.ctx.allocator, tensor->release(), bytes, dtype, made, Device::kCuda);
}

}  // namespace raggrad::cuda
