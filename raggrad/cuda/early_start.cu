#include <array>
#include <atomic>

#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/early_start.cuh"
#include "raggrad/cuda/errors.cuh"

namespace raggrad::cuda {
namespace {

// Stands for all kernels: every source of the library is compiled for the same architectures.
__global__ void AnyKernel() { AwaitKernelBefore(); }

// ptxVersion tells the __CUDA_ARCH__ that the code was compiled with. binaryVersion tells only that of the GPU.
bool AskKernel() noexcept {
  cudaFuncAttributes attributes = {};
  if (cudaFuncGetAttributes(&attributes, AnyKernel) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return attributes.ptxVersion >= kFirstEarlyArchitecture / 10;
}

}  // namespace

bool KernelsAwaitTheOneBefore() noexcept {
  enum : signed char { kUnknown, kNo, kYes };
  static std::array<std::atomic<signed char>, 64> answers = {};  // one for each device
  int device = 0;
  Ignore(cudaGetDevice(&device));
  if (device < 0 || device >= static_cast<int>(answers.size())) return AskKernel();
  std::atomic<signed char>& answer = answers[static_cast<size_t>(device)];
  if (answer == kUnknown) answer = AskKernel() ? kYes : kNo;
  return answer == kYes;
}

}  // namespace raggrad::cuda
