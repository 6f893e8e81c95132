// How operators reach the kernels for GPUs. They are in a shared library of their own, libraggrad_cuda.so, which is
// looked for when a call first brings device memory; without it, or without a GPU, everything else works as ever.
// Internal to the library.
//
// A family's kernels are a struct of function pointers, cuda::Kernels in its kernels.h, and the library exports one
// object of it per family. Both sides are of one build: a library of another version is not used.
#pragma once

#include <string_view>

#include "raggrad/core/operands.h"
#include "raggrad/core/result.h"
#include "raggrad/cpu/float_environment.h"

namespace raggrad::cuda {

// The address of `symbol` in the library. UNIMPLEMENTED, with the reason, if there is no library, no such symbol or no
// GPU. The first call in a process takes as long as CUDA takes to start, some 100 ms; later ones look into a table.
Result<const void*> FindKernels(std::string_view op, const char* symbol) noexcept;

// f(const Kernels&), or why it cannot be called.
template <class Kernels, class F>
auto WithKernels(std::string_view op, const F& f) noexcept -> decltype(f(*static_cast<const Kernels*>(nullptr))) {
  const Result<const void*> kernels = FindKernels(op, Kernels::kSymbol);
  if (!kernels.ok()) return kernels.status();
  return WithOp(op, [&] { return f(*static_cast<const Kernels*>(*kernels)); });
}

// on_cpu(), in the environment that everything is computed in, or on_cuda(const Kernels&): by the device that the
// operands are on.
template <class Kernels, class Cpu, class Cuda>
auto RunOnDevice(std::string_view op, Device device, const Cpu& on_cpu, const Cuda& on_cuda) noexcept
    -> decltype(on_cpu()) {
  if (device == Device::kCpu) return WithOp(op, [&] { return cpu::InFloatEnvironment(on_cpu); });
  if (device == Device::kCuda) return WithKernels<Kernels>(op, on_cuda);
  return NoKernelForDevice(op, device);
}

}  // namespace raggrad::cuda
