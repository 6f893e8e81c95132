#include "raggrad/testing/failing_new.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

using raggrad::testing::Failing;

// Atomic, because workers allocate too. Constant-initialised, because operator new is called before main().
constinit std::atomic<Failing> failing{Failing::kNever};
constinit std::atomic<int64_t> fail_at{0};
constinit std::atomic<int64_t> requests{0};
constinit std::atomic<size_t> largest_request{0};

bool Fails(size_t bytes) noexcept {
  const Failing when = failing.load();
  if (when == Failing::kNever) return false;
  for (size_t largest = largest_request; largest < bytes && !largest_request.compare_exchange_weak(largest, bytes);) {
  }
  const int64_t request = requests.fetch_add(1);
  return when == Failing::kOnce ? request == fail_at.load() : request >= fail_at.load();
}

void* Allocate(size_t bytes, size_t alignment = alignof(std::max_align_t)) noexcept {
  void* memory = nullptr;
  return Fails(bytes) || posix_memalign(&memory, alignment, bytes) != 0 ? nullptr : memory;
}

void* OrThrow(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// Not inlined, or else g++ warns of a pointer that comes from operator new and goes to free().
[[gnu::noinline]] void Free(void* memory) noexcept { std::free(memory); }

}  // namespace

// All forms that are in use: the standard library's other forms call these, but AddressSanitizer's do not.
void* operator new(size_t bytes) { return OrThrow(Allocate(bytes)); }
void* operator new[](size_t bytes) { return OrThrow(Allocate(bytes)); }
void* operator new(size_t bytes, const std::nothrow_t& /*tag*/) noexcept { return Allocate(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t& /*tag*/) noexcept { return Allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return OrThrow(Allocate(bytes, static_cast<size_t>(alignment)));
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t /*bytes*/) noexcept { Free(memory); }
void operator delete[](void* memory, size_t /*bytes*/) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { Free(memory); }
void operator delete(void* memory, size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept { Free(memory); }

namespace raggrad::testing {

ScopedFailure::ScopedFailure(Failing when, int64_t at) noexcept {
  requests = 0;
  largest_request = 0;
  fail_at = at;
  failing = when;
}

ScopedFailure::~ScopedFailure() { failing = Failing::kNever; }

int64_t RequestsOfNew() noexcept { return requests; }

size_t LargestRequestOfNew() noexcept { return largest_request; }

}  // namespace raggrad::testing
