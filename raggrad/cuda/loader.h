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

// Guard that makes a GPU the current device of the calling thread. Only after FindKernels succeeded.
class CurrentGpu {
 public:
  explicit CurrentGpu(int number) noexcept;
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;
  ~CurrentGpu();

  // INVALID_ARGUMENT if there is no such GPU.
  const Status& status() const noexcept { return before_.status(); }

 private:
  const Result<int> before_;
  const int number_;
};

// Calls f(const Kernels&) while the GPU `device` is the current one, or returns the error of FindKernels or CurrentGpu.
template <class Kernels, class F>
auto WithKernels(std::string_view op, Device device, const F& f) noexcept
    -> decltype(f(*static_cast<const Kernels*>(nullptr))) {
  if (!device.is_cuda()) return NoKernelForDevice(op, device);
  const Result<const void*> kernels = FindKernels(op, Kernels::kSymbol);
  if (!kernels.ok()) return kernels.status();
  const CurrentGpu gpu(device.number);
  if (!gpu.status().ok()) return Named(op, gpu.status());
  return WithOp(op, [&] { return f(*static_cast<const Kernels*>(*kernels)); });
}

// Calls on_cpu(), in the library's floating-point environment, or on_cuda(const Kernels&), for the device of the
// operands.
template <class Kernels, class Cpu, class Cuda>
auto RunOnDevice(std::string_view op, Device device, const Cpu& on_cpu, const Cuda& on_cuda) noexcept
    -> decltype(on_cpu()) {
  if (device.is_cpu()) return WithOp(op, [&] { return cpu::InFloatEnvironment(on_cpu); });
  return WithKernels<Kernels>(op, device, on_cuda);
}

}  // namespace raggrad::cuda
