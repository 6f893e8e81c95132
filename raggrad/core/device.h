// Device: where memory lies.
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)
namespace raggrad {

enum class DeviceKind : int32_t { kCpu = 1, kCuda = 2 };  // DLPack's numbers

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int32_t number = 0;  // of the GPU, as CUDA counts them; 0 for host memory

  static constexpr Device Cpu() noexcept { return {}; }
  static constexpr Device Cuda(int32_t number = 0) noexcept { return {DeviceKind::kCuda, number}; }

  constexpr bool is_cpu() const noexcept { return kind == DeviceKind::kCpu; }
  constexpr bool is_cuda() const noexcept { return kind == DeviceKind::kCuda; }
  bool operator==(const Device&) const noexcept = default;
};

}  // namespace raggrad
#pragma GCC visibility pop
