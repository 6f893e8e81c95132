// Device memory that runs out when told to. The counterpart of counting_allocator.h for tests that need a GPU.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "raggrad/core/context.h"
#include "raggrad/cuda/cuda.h"

namespace raggrad::testing {

class FailingPool final : public Allocator {
 public:
  // Fails at the n-th request, counted from 0.
  FailingPool(Allocator& pool, int64_t fail_at) noexcept : pool_(pool), fail_at_(fail_at) {}
  ~FailingPool() override { EXPECT_EQ(live_, 0) << "allocations were not given back"; }

  void* Allocate(size_t bytes) noexcept override {
    if (requests_++ == fail_at_) return nullptr;
    ++live_;
    return pool_.Allocate(bytes);
  }
  void Deallocate(void* pointer, size_t bytes) noexcept override {
    --live_;
    pool_.Deallocate(pointer, bytes);
  }

  int64_t requests() const noexcept { return requests_; }

 private:
  Allocator& pool_;
  const int64_t fail_at_;
  int64_t requests_ = 0;
  int64_t live_ = 0;
};

// Runs `call(const Context&) -> Status` with device memory that fails at request 0, 1, 2, ... until it succeeds: every
// failure must be RESOURCE_EXHAUSTED and give all memory back.
template <class F>
void ExpectEveryDeviceAllocationFailureIsReported(const F& call) {
  const Result<Allocator*> pool = CudaPool(nullptr);
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  for (int64_t fail_at = 0;; ++fail_at) {
    SCOPED_TRACE("request " + std::to_string(fail_at) + " fails");
    FailingPool failing(**pool, fail_at);
    Context ctx;
    ctx.allocator = &failing;
    const Status status = call(static_cast<const Context&>(ctx));
    if (failing.requests() <= fail_at) {
      EXPECT_TRUE(status.ok()) << status.message();
      return;
    }
    ASSERT_EQ(status.code(), Code::kResourceExhausted) << status.message();
  }
}

}  // namespace raggrad::testing
