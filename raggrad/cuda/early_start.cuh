// Whether kernels may start early. Internal to the CUDA library.
#pragma once

namespace raggrad::cuda {

// Whether the code that runs on the current device has the wait of AwaitKernelBefore() (device.cuh). Only then may a
// kernel start before the one before it has ended. The generation of the GPU does not decide it: if the library has no
// machine code for a GPU, the driver compiles PTX of an earlier architecture, which may lack the wait.
bool KernelsAwaitTheOneBefore() noexcept;

}  // namespace raggrad::cuda
