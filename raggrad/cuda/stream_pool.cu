#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include "raggrad/cuda/device_memory.cuh"
#include "raggrad/cuda/stream_pool.cuh"
#include "raggrad/cuda/streams.cuh"

namespace raggrad::cuda {
namespace {

// The pool of a stream that has one handle for all threads.
class StreamPool final : public Allocator {
 public:
  StreamPool(DeviceMemory& memory, void* stream) noexcept
      : memory_(memory), stream_(static_cast<cudaStream_t>(stream)) {}

  void* Allocate(size_t bytes) noexcept override { return memory_.Allocate(bytes, stream_); }
  void Deallocate(void* pointer, size_t) noexcept override { memory_.Free(pointer, stream_); }

 private:
  DeviceMemory& memory_;
  const cudaStream_t stream_;
};

// The pool of all per-thread streams. Remembers which thread allocated each block.
class PerThreadPool final : public Allocator {
 public:
  explicit PerThreadPool(DeviceMemory& memory) noexcept : memory_(memory) {}

  void* Allocate(size_t bytes) noexcept override {
    void* const block = memory_.Allocate(bytes, cudaStreamPerThread);
    if (block == nullptr) return nullptr;
    try {
      const std::lock_guard lock(mutex_);
      owners_[block] = ThreadNumber();
      return block;
    } catch (const std::bad_alloc&) {
      memory_.Free(block, cudaStreamPerThread);
      return nullptr;
    }
  }
  void Deallocate(void* pointer, size_t) noexcept override {
    StreamId owner{cudaStreamPerThread, memory_.device()};
    {
      const std::lock_guard lock(mutex_);
      owner.thread = owners_.extract(pointer).mapped();
    }
    memory_.Free(pointer, BehindAllOf(owner));
  }

 private:
  DeviceMemory& memory_;
  std::mutex mutex_;
  std::unordered_map<void*, uint64_t> owners_;  // ThreadNumber() for each block in use
};

std::unique_ptr<Allocator> MakePool(DeviceMemory& memory, const StreamId& stream) {
  if (stream.thread != 0) return std::make_unique<PerThreadPool>(memory);
  return std::make_unique<StreamPool>(memory, stream.handle);
}

}  // namespace

Result<Allocator*> PoolOf(const StreamId& stream) noexcept {
  static std::mutex mutex;
  static auto& pools = *new std::map<std::pair<int, void*>, std::unique_ptr<Allocator>>;
  try {
    const std::lock_guard lock(mutex);
    std::unique_ptr<Allocator>& pool = pools[{stream.device, stream.handle}];
    if (pool != nullptr) return pool.get();
    const Result<DeviceMemory*> memory = DeviceMemory::Of(stream.device);
    if (!memory.ok()) return memory.status();
    pool = MakePool(**memory, stream);
    return pool.get();
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "no memory for a pool of device memory");
  }
}

}  // namespace raggrad::cuda
