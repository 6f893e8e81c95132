// Pinned host memory that a call writes and its stream reads later. Internal to the CUDA library.
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

// Buffers of pinned memory, shared by all threads and devices. A buffer is unread until the GPU has read it. A thread
// that has kMostUnread unread buffers waits for the oldest of them. Idle buffers are kept for later calls, since
// pinning takes some 100 us a MiB.
class StagingBuffers {
 public:
  struct Limits {
    size_t idle_bytes = kTuning.staging_max_idle_bytes;    // idle buffers above this are freed ...
    uint64_t idle_calls = kTuning.staging_max_idle_calls;  // ... if that many calls have not used them
  };
  static constexpr int kMostUnread = kTuning.staging_max_unread_per_thread;

  // The library's buffers, never destroyed.
  static StagingBuffers& Instance() noexcept;

  explicit StagingBuffers(const Limits& limits) noexcept : limits_(limits) {}
  StagingBuffers(const StagingBuffers&) = delete;
  StagingBuffers& operator=(const StagingBuffers&) = delete;
  ~StagingBuffers();

  // A buffer of at least `bytes`, for the caller alone.
  Result<Staging> Take(size_t bytes) noexcept;

  // Number and size of the buffers that no call holds.
  size_t idle_count() const noexcept;
  size_t idle_bytes() const noexcept;

 private:
  friend class Staging;

  struct Buffer {
    void* data = nullptr;
    size_t bytes = 0;
    cudaEvent_t read = nullptr;  // completes when the stream has read the buffer
    int device = -1;             // of the event
    bool in_hand = false;        // a call holds it
    bool unread = false;         // as last queried
    uint64_t thread = 0;         // that used it last
    uint64_t turn = 0;           // when it was used last, in calls of Take()

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
  std::list<Buffer> buffers_;  // least recently used first
  uint64_t turn_ = 0;
};

// RAII holder of a buffer. Destroyed without Release(), it returns the buffer as read: no stream may read it then.
class Staging {
 public:
  static Result<Staging> Take(size_t bytes) noexcept { return StagingBuffers::Instance().Take(bytes); }

  Staging(Staging&& other) noexcept;
  Staging& operator=(Staging&&) = delete;
  ~Staging();

  void* data() const noexcept { return buffer_->data; }
  // Returns the buffer, which stays unread until the stream, of the current device, has done all work queued so far.
  Status Release(cudaStream_t stream) noexcept;

 private:
  friend class StagingBuffers;
  Staging(StagingBuffers& buffers, StagingBuffers::Buffer& buffer) noexcept : buffers_(&buffers), buffer_(&buffer) {}

  StagingBuffers* buffers_;
  StagingBuffers::Buffer* buffer_;  // null once returned
};

}  // namespace raggrad::cuda
