// The architecture that kernels were compiled for. For early_start_test.cc, which g++ compiles.
#pragma once

namespace raggrad::cuda {

// __CUDA_ARCH__ of the code that runs on the current device; 0 if no kernel can run.
int CompiledFor() noexcept;

}  // namespace raggrad::cuda
