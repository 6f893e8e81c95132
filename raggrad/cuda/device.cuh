// Device code that kernels of several families share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "raggrad/core/error_text.h"

namespace raggrad::cuda {

inline constexpr unsigned kWarp = 32;
inline constexpr uint32_t kAllLanes = 0xffffffff;

__device__ inline unsigned Lane() { return threadIdx.x % kWarp; }

// The position of this thread in a one-dimensional grid.
__device__ inline int64_t GlobalThread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// The dynamic shared memory that the kernel was launched with.
template <class T>
__device__ T* DynamicShared() {
  extern __shared__ unsigned long long shared_memory[];
  return reinterpret_cast<T*>(shared_memory);
}

// Early starts (Call::LaunchEarly) need Hopper or later, and code that was compiled for it (early_start.cuh).
inline constexpr int kFirstEarlyArchitecture = 900;  // as __CUDA_ARCH__; the preprocessor needs the literal below
// Lets the next kernel start, once all blocks of this one have called it.
__device__ inline void LetNextKernelStart() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}
// Waits for the end of the kernel before. Needed before an early kernel touches memory that the other writes.
__device__ inline void AwaitKernelBefore() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// Starts to bring what lies at that address into the second-level cache, and does not wait for it.
__device__ inline void Prefetch(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }

// Kernels that only move elements are compiled per element size, as on the CPU. 16 bytes need only alignment to 8.
struct TwoWords {
  uint64_t words[2];
};
template <size_t kBytes>
using BitsOfSize = std::conditional_t<
    kBytes == 1, uint8_t,
    std::conditional_t<kBytes == 2, uint16_t,
                       std::conditional_t<kBytes == 4, uint32_t, std::conditional_t<kBytes == 8, uint64_t, TwoWords>>>>;
template <class T>
using Bits = BitsOfSize<sizeof(T)>;

__device__ inline void AtomicMin(uint64_t* word, uint64_t value) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  atomicMin(reinterpret_cast<unsigned long long*>(word), static_cast<unsigned long long>(value));
}

// The error of an operator whose kernels do not take strings.
inline Status NoStrings(std::string_view op, std::string_view argument) noexcept {
  return MakeError(Code::kUnimplemented, op, ": there are no kernels for strings on this device [", argument,
                   ": expected numbers, got string]");
}

}  // namespace raggrad::cuda
