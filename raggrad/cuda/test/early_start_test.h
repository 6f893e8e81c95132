// Asks a running kernel for its architecture. For the test.
#pragma once

namespace raggrad::cuda {

// __CUDA_ARCH__ of a kernel, as it runs on the current device; 0 if it does not run.
int CompiledFor() noexcept;

}  // namespace raggrad::cuda
