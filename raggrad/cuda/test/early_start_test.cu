#include <cuda_runtime.h>

#include "raggrad/cuda/test/early_start_test.h"

namespace raggrad::cuda {
namespace {

__global__ void TellArchitecture(int* architecture) {
#ifdef __CUDA_ARCH__
  *architecture = __CUDA_ARCH__;
#endif
}

}  // namespace

int CompiledFor() noexcept {
  int* pinned = nullptr;
  if (cudaMallocHost(&pinned, sizeof(int)) != cudaSuccess) return 0;
  *pinned = 0;
  TellArchitecture<<<1, 1>>>(pinned);
  const int architecture = cudaDeviceSynchronize() == cudaSuccess ? *pinned : 0;
  cudaFreeHost(pinned);
  return architecture;
}

}  // namespace raggrad::cuda
