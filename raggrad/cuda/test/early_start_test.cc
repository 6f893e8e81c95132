// Kernels are started early if, and only if, they were compiled with the wait for the kernel before.
#include "raggrad/cuda/early_start.cuh"

#include "raggrad/cuda/test/early_start_test.h"
#include "raggrad/cuda/test/parts_test.h"

namespace raggrad::cuda {
namespace {

using EarlyStartTest = PartsTest;

TEST_F(EarlyStartTest, IsWhatKernelsWereCompiledWith) {
  const int architecture = CompiledFor();  // of a GPU of a later generation it is that of the PTX
  ASSERT_GE(architecture, 500);
  EXPECT_EQ(KernelsAwaitTheOneBefore(), architecture >= 900) << architecture;
  EXPECT_EQ(KernelsAwaitTheOneBefore(), architecture >= 900) << "asked again";
}

}  // namespace
}  // namespace raggrad::cuda
