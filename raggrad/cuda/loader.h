// Loads libraggrad_cuda.so, which has the kernels for GPUs, when a call first brings device memory. Without it, or
// without a GPU, only calls with device memory fail. Internal to the library.
//
// The kernels of a family are a struct of function pointers, on_cuda::Kernels in its kernels.h. The library exports one
// such object for each family. A library of another version is refused.
#pragma once

#include <string_view>

#include "raggrad/core/operands.h"
#include "raggrad/core/result.h"
#include "raggrad/cpu/float_environment.h"

namespace raggrad::cuda {

// The address of `symbol` in the library. UNIMPLEMENTED, with the reason, if there is no library, no such symbol or no
// GPU. The first call in a process starts CUDA, which takes some 100 ms; later ones only look the symbol up.
Result<const void*> FindKernels(std::string_view op, const char* symbol) noexcept;

// Calls f(const Kernels&), or returns the error of FindKernels.
template <class Kernels, class F>
auto WithKernels(std::string_view op, const F& f) noexcept -> decltype(f(*static_cast<const Kernels*>(nullptr))) {
  const Result<const void*> kernels = FindKernels(op, Kernels::kSymbol);
  if (!kernels.ok()) return kernels.status();
  return WithOp(op, [&] { return f(*static_cast<const Kernels*>(*kernels)); });
}

// Calls on_cpu(), in the library's floating-point environment, or on_cuda(const Kernels&), for the device of the
// operands.
template <class Kernels, class Cpu, class Cuda>
auto RunOnDevice(std::string_view op, Device device, const Cpu& on_cpu, const Cuda& on_cuda) noexcept
    -> decltype(on_cpu()) {
  if (device == Device::kCpu) return WithOp(op, [&] { return cpu::InFloatEnvironment(on_cpu); });
  if (device == Device::kCuda) return WithKernels<Kernels>(op, on_cuda);
  return NoKernelForDevice(op, device);
}

}  // namespace raggrad::cuda
