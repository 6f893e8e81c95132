// A kernel may be started early if and only if its code waits for the kernel before it.
#include "raggrad/cuda/early_start.cuh"

#include "raggrad/cuda/test/early_start_test.h"
#include "raggrad/cuda/test/parts_test.h"

namespace raggrad::cuda {
namespace {

using EarlyStartTest = PartsTest;

TEST_F(EarlyStartTest, IsWhatKernelsWereCompiledWith) {
  const int architecture = CompiledFor();  // a newer GPU reports the architecture of the PTX
  ASSERT_GE(architecture, 500);
  EXPECT_EQ(KernelsAwaitTheOneBefore(), architecture >= 900) << architecture;
  EXPECT_EQ(KernelsAwaitTheOneBefore(), architecture >= 900) << "asked again";
}

}  // namespace
}  // namespace raggrad::cuda
