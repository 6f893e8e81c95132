// How errors of CUDA are passed on. Internal to the CUDA library.
#pragma once

#include <cuda_runtime.h>

#include <string_view>

#include "raggrad/core/error_text.h"

namespace raggrad::cuda {

// RESOURCE_EXHAUSTED for memory, INTERNAL for all else: a fault of a kernel, or of what the caller did before.
inline Status ToStatus(cudaError_t error, const char* what) noexcept {
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // an error that is not sticky is reported once
  const Code code = error == cudaErrorMemoryAllocation ? Code::kResourceExhausted : Code::kInternal;
  return MakeError(code, "CUDA: ", std::string_view(what), ": ", std::string_view(cudaGetErrorString(error)));
}

// For calls whose failure changes nothing, or shows elsewhere.
inline void Ignore(cudaError_t error) noexcept {
  if (error != cudaSuccess) cudaGetLastError();  // or the next launch would report it
}

}  // namespace raggrad::cuda
