// Host memory that a stream reads later: descriptions of work that are made anew for every call. Internal to the CUDA
// library.
//
//   Result<Staging> staging = Staging::Take(bytes);
//   ... write to staging->data(), queue a kernel on `stream` that reads it ...
//   if (Status s = staging->Release(stream); !s.ok()) return s;
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>

#include "raggrad/core/result.h"
#include "raggrad/cuda/tuning.h"

namespace raggrad::cuda {

class Staging;

// Buffers of pinned memory, of all threads and devices. A thread has at most kMostUnread of them that have not been
// read; then it waits for the first of its own. What was used lately is kept for the next call, since pinning takes
// some 100 us a MiB.
class StagingBuffers {
 public:
  struct Limits {
    size_t idle_bytes = kTuning.staging_max_idle_bytes;    // idle buffers above this are freed ...
    uint64_t idle_calls = kTuning.staging_max_idle_calls;  // ... if that many calls have not used them
  };
  static constexpr int kMostUnread = kTuning.staging_max_unread_per_thread;

  // Those of the library, never destroyed.
  static StagingBuffers& Instance() noexcept;

  explicit StagingBuffers(const Limits& limits) noexcept : limits_(limits) {}
  StagingBuffers(const StagingBuffers&) = delete;
  StagingBuffers& operator=(const StagingBuffers&) = delete;
  ~StagingBuffers();

  // A buffer that nothing reads any more.
  Result<Staging> Take(size_t bytes) noexcept;

  // Of buffers that no call has in hand.
  size_t idle_count() const noexcept;
  size_t idle_bytes() const noexcept;

 private:
  friend class Staging;

  struct Buffer {
    void* data = nullptr;
    size_t bytes = 0;
    cudaEvent_t read = nullptr;  // of `device`
    int device = -1;
    bool in_hand = false;  // of a call that has not released it
    bool unread = false;   // when last asked
    uint64_t thread = 0;   // the last that had it
    uint64_t turn = 0;

    bool IsRead() noexcept;
    Status AwaitRead() noexcept;
    Status Reserve(size_t wanted) noexcept;
    void Free() noexcept;
  };

  template <class F>
  size_t SumOverIdle(const F& f) const noexcept;
  Result<Buffer*> Find(size_t bytes) noexcept;
  void FreeIdle() noexcept;
  void Give(Buffer& buffer) noexcept;

  const Limits limits_;
  mutable std::mutex mutex_;
  std::list<Buffer> buffers_;  // those that were used first come first
  uint64_t turn_ = 0;
};

// A buffer in the hand of a call. Given back when it goes out of scope; unless it was released, nothing reads it then.
class Staging {
 public:
  static Result<Staging> Take(size_t bytes) noexcept { return StagingBuffers::Instance().Take(bytes); }

  Staging(Staging&& other) noexcept;
  Staging& operator=(Staging&&) = delete;
  ~Staging();

  void* data() const noexcept { return buffer_->data; }
  // The buffer is free again when the stream, of the current device, has come here.
  Status Release(cudaStream_t stream) noexcept;

 private:
  friend class StagingBuffers;
  Staging(StagingBuffers& buffers, StagingBuffers::Buffer& buffer) noexcept : buffers_(&buffers), buffer_(&buffer) {}

  StagingBuffers* buffers_;
  StagingBuffers::Buffer* buffer_;  // null: given back
};

}  // namespace raggrad::cuda
