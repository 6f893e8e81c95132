// Whether kernels can be started early. Internal to the CUDA library.
#pragma once

namespace raggrad::cuda {

// Whether kernels of this library, as they run on the current device, were compiled with the wait for the kernel before
// (AwaitKernelBefore in device.cuh): only then may they be started before it has ended. The device's generation does
// not tell: a GPU that has no code of its own in the library runs what the driver compiles from the PTX of an earlier
// one.
bool KernelsAwaitTheOneBefore() noexcept;

}  // namespace raggrad::cuda
