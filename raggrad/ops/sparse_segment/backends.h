// The choice of the backend: by the device that the operands are on. Internal to the family.
#pragma once

#include "raggrad/core/operands.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/sparse_segment/kernels.h"

namespace raggrad::sparse_segment {

// on_cpu(), or on_cuda(const cuda::Kernels&).
template <class Cpu, class Cuda>
auto OnDevice(std::string_view op, Device device, const Cpu& on_cpu, const Cuda& on_cuda) noexcept
    -> decltype(on_cpu()) {
  if (device == Device::kCpu) return on_cpu();
  if (device == Device::kCuda) return ::raggrad::cuda::WithKernels<cuda::Kernels>(op, on_cuda);
  return NoKernelForDevice(op, device);
}

}  // namespace raggrad::sparse_segment
