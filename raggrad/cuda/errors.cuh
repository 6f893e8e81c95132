// Errors of CUDA as Status. Internal to the CUDA library.
#pragma once

#include <cuda_runtime.h>

#include <string_view>

#include "raggrad/core/error_text.h"

namespace raggrad::cuda {

// RESOURCE_EXHAUSTED if memory is short. INTERNAL for everything else, such as a failed kernel, also of the caller's.
inline Status ToStatus(cudaError_t error, const char* what) noexcept {
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // clears the error, so that the next call does not report it again
  const Code code = error == cudaErrorMemoryAllocation ? Code::kResourceExhausted : Code::kInternal;
  return MakeError(code, "CUDA: ", std::string_view(what), ": ", std::string_view(cudaGetErrorString(error)));
}

// Drops the error of a call whose failure has no effect or is noticed elsewhere.
inline void Ignore(cudaError_t error) noexcept {
  if (error != cudaSuccess) cudaGetLastError();  // clears it, or the next launch would report it
}

}  // namespace raggrad::cuda
