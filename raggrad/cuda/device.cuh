// What kernels of several families share.
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

// The number of this thread among all of a grid of one dimension.
__device__ inline int64_t GlobalThread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// The shared memory that a kernel was launched with.
template <class T>
__device__ T* DynamicShared() {
  extern __shared__ unsigned long long shared_memory[];
  return reinterpret_cast<T*>(shared_memory);
}

// For kernels that are started early (Call::LaunchEarly), which only Hopper and later can do, and only with code that
// was compiled for them (early_start.cuh). The one before says from when on the next may be started, as soon as all its
// blocks have said so; the next waits for its end before it touches what it writes.
inline constexpr int kFirstEarlyArchitecture = 900;  // as __CUDA_ARCH__, which the preprocessor has to compare
__device__ inline void LetNextKernelStart() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}
__device__ inline void AwaitKernelBefore() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// As the CPU's kernels, those that only move elements know nothing of them but their size. 16 bytes need not be
// aligned to more than 8.
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

// The answer of an operator that has kernels for numbers only.
inline Status NoStrings(std::string_view op, std::string_view argument) noexcept {
  return MakeError(Code::kUnimplemented, op, ": there are no kernels for strings on this device [", argument,
                   ": expected numbers, got string]");
}

}  // namespace raggrad::cuda
