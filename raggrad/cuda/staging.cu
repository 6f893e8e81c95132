#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "raggrad/cuda/errors.cuh"
#include "raggrad/cuda/staging.cuh"
#include "raggrad/cuda/streams.cuh"
#include "raggrad/cuda/tuning.h"

namespace raggrad::cuda {
namespace {

size_t RoundUp(size_t bytes) noexcept { return std::max(std::bit_ceil(bytes), kTuning.staging_min_buffer_bytes); }

// Whether the buffer is large enough, and not so large that small calls would keep it in use.
bool Fits(size_t buffer, size_t bytes) noexcept { return bytes <= buffer && buffer / 4 <= RoundUp(bytes); }

}  // namespace

StagingBuffers& StagingBuffers::Instance() noexcept {
  static auto& buffers = *new StagingBuffers(Limits{});
  return buffers;
}

StagingBuffers::~StagingBuffers() {
  for (Buffer& buffer : buffers_) {
    Ignore(cudaEventSynchronize(buffer.read));
    buffer.Free();
  }
}

Result<Staging> StagingBuffers::Take(size_t bytes) noexcept {
  const Result<Buffer*> found = Find(bytes);
  if (!found.ok()) return found.status();
  Buffer& buffer = **found;
  Staging staging(*this, buffer);
  if (Status s = buffer.AwaitRead(); !s.ok()) return s;
  if (Status s = buffer.Reserve(bytes); !s.ok()) return s;
  return Result<Staging>(std::move(staging));  // `return staging` would copy with nvcc 13.0
}

// A buffer that only this call uses. The caller has to wait until it is read, and to make it large enough.
Result<StagingBuffers::Buffer*> StagingBuffers::Find(size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  ++turn_;
  FreeIdle();
  const uint64_t thread = ThreadNumber();
  Buffer* found = nullptr;
  Buffer* first_of_own = nullptr;
  int unread_of_own = 0;
  for (Buffer& buffer : buffers_) {
    if (buffer.in_hand) continue;
    if (!buffer.IsRead()) {
      if (buffer.thread == thread && ++unread_of_own == 1) first_of_own = &buffer;
    } else if (Fits(buffer.bytes, bytes)) {
      found = &buffer;
      break;
    }
  }
  if (found == nullptr && unread_of_own >= kMostUnread) found = first_of_own;
  if (found == nullptr) {
    try {
      found = &buffers_.emplace_back();
    } catch (const std::bad_alloc&) {
      return Status(Code::kResourceExhausted, "no memory for a buffer");
    }
  }
  found->in_hand = true;
  found->thread = thread;
  found->turn = turn_;
  return found;
}

template <class F>
size_t StagingBuffers::SumOverIdle(const F& f) const noexcept {
  size_t sum = 0;
  for (const Buffer& buffer : buffers_) {
    if (!buffer.in_hand) sum += f(buffer);
  }
  return sum;
}

void StagingBuffers::FreeIdle() noexcept {
  size_t idle = SumOverIdle([](const Buffer& buffer) { return buffer.bytes; });
  for (auto buffer = buffers_.begin(); buffer != buffers_.end() && idle > limits_.idle_bytes;) {
    const auto next = std::next(buffer);
    const bool lately = turn_ - buffer->turn <= limits_.idle_calls;
    if (!buffer->in_hand && !lately && buffer->IsRead()) {
      idle -= buffer->bytes;
      buffer->Free();
      buffers_.erase(buffer);
    }
    buffer = next;
  }
}

void StagingBuffers::Give(Buffer& buffer) noexcept {
  const std::lock_guard lock(mutex_);
  buffer.in_hand = false;
  const auto place = std::ranges::find(buffers_, &buffer, [](const Buffer& other) { return &other; });
  if (buffer.data == nullptr) {  // Reserve found no memory
    buffer.Free();
    buffers_.erase(place);
  } else {
    buffers_.splice(buffers_.end(), buffers_, place);
  }
}

size_t StagingBuffers::idle_count() const noexcept {
  const std::lock_guard lock(mutex_);
  return SumOverIdle([](const Buffer&) { return size_t{1}; });
}

size_t StagingBuffers::idle_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return SumOverIdle([](const Buffer& buffer) { return buffer.bytes; });
}

bool StagingBuffers::Buffer::IsRead() noexcept {
  if (!unread) return true;
  const cudaError_t error = cudaEventQuery(read);
  unread = error != cudaSuccess;
  Ignore(error);
  return !unread;
}

Status StagingBuffers::Buffer::AwaitRead() noexcept {
  if (!unread) return {};
  if (Status s = ToStatus(cudaEventSynchronize(read), "a kernel failed"); !s.ok()) return s;
  unread = false;
  return {};
}

// Makes the buffer have `wanted` bytes, and an event of the current device.
Status StagingBuffers::Buffer::Reserve(size_t wanted) noexcept {
  int current = 0;
  if (Status s = ToStatus(cudaGetDevice(&current), "no device"); !s.ok()) return s;
  if (current != device) {  // an event belongs to one device; pinned memory serves all
    if (read != nullptr) Ignore(cudaEventDestroy(std::exchange(read, nullptr)));
    device = -1;
    if (Status s = ToStatus(cudaEventCreateWithFlags(&read, cudaEventDisableTiming), "no event"); !s.ok()) return s;
    device = current;
  }
  if (wanted <= bytes) return {};
  Ignore(cudaFreeHost(std::exchange(data, nullptr)));
  bytes = 0;
  const size_t grown = RoundUp(wanted);
  if (Status s = ToStatus(cudaMallocHost(&data, grown), "no pinned memory"); !s.ok()) return s;
  bytes = grown;
  return {};
}

void StagingBuffers::Buffer::Free() noexcept {
  if (read != nullptr) Ignore(cudaEventDestroy(read));
  Ignore(cudaFreeHost(data));
}

Staging::Staging(Staging&& other) noexcept : buffers_(other.buffers_), buffer_(std::exchange(other.buffer_, nullptr)) {}

Staging::~Staging() {
  if (buffer_ != nullptr) buffers_->Give(*buffer_);
}

Status Staging::Release(cudaStream_t stream) noexcept {
  const cudaError_t error = cudaEventRecord(buffer_->read, stream);
  if (error == cudaSuccess) {
    buffer_->unread = true;
  } else {
    Ignore(cudaStreamSynchronize(stream));
  }
  buffers_->Give(*std::exchange(buffer_, nullptr));
  return ToStatus(error, "an event could not be recorded");
}

}  // namespace raggrad::cuda
