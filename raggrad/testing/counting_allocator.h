// An allocator that counts, and fails when told to. Thread-safe.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>

#include "raggrad/core/allocator.h"
#include "raggrad/core/context.h"
#include "raggrad/core/function_ref.h"
#include "raggrad/core/status.h"

namespace raggrad::testing {

class CountingAllocator final : public Allocator {
 public:
  // Fails at the n-th request, counted from 0; never if negative. Memory comes from `source`.
  explicit CountingAllocator(int64_t fail_at = -1, Allocator& source = DefaultAllocator()) noexcept
      : fail_at_(fail_at), source_(source) {}
  ~CountingAllocator() override { EXPECT_EQ(live_, 0U) << "bytes were not given back"; }

  void* Allocate(size_t bytes) noexcept override {
    if (requests_++ == fail_at_) return nullptr;
    const size_t live = live_ += bytes;
    for (size_t peak = peak_; live > peak && !peak_.compare_exchange_weak(peak, live);) {
    }
    return source_.Allocate(bytes);
  }
  void Deallocate(void* pointer, size_t bytes) noexcept override {
    live_ -= bytes;
    source_.Deallocate(pointer, bytes);
  }

  int64_t requests() const noexcept { return requests_; }
  size_t live_bytes() const noexcept { return live_; }
  size_t peak_bytes() const noexcept { return peak_; }

 private:
  const int64_t fail_at_;
  Allocator& source_;
  std::atomic<int64_t> requests_{0};
  std::atomic<size_t> live_{0};
  std::atomic<size_t> peak_{0};
};

// Runs `call(const Context&) -> Status` with an allocator that fails at request 0, 1, 2, ... until it succeeds: every
// failure must be RESOURCE_EXHAUSTED and give all memory back. `which` of the context's allocators fails.
void ExpectEveryAllocationFailureIsReported(Context ctx, FunctionRef<Status(const Context&)> call,
                                            Allocator& source = DefaultAllocator(),
                                            Allocator* Context::*which = &Context::allocator);

}  // namespace raggrad::testing
