// Without a GPU every function for device memory returns one clear error.
#include "raggrad/cuda/cuda.h"

#include <gmock/gmock.h>

#include <array>

#include "raggrad/testing/status_matchers.h"

namespace raggrad::testing {
namespace {

using ::testing::HasSubstr;

class WithoutGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (CudaStatus().ok()) GTEST_SKIP() << "there is a GPU";
  }
};

TEST_F(WithoutGpuTest, StatusSaysWhatIsMissing) {
  const Status status = CudaStatus();
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("CudaStatus: there are no kernels for this device"));
  EXPECT_THAT(std::string(status.message()), ::testing::ContainsRegex("no GPU|libraggrad_cuda.so"));
}

TEST_F(WithoutGpuTest, PoolAndCopyGiveTheSameReason) {
  const std::array<float, 3> values = {1, 2, 3};
  EXPECT_THAT(CudaPool(Device::Cuda(), nullptr),
              StatusIs(Code::kUnimplemented, HasSubstr("CudaPool: there are no kernels")));
  EXPECT_THAT(CopyTensor(TensorView::Vector<float>(values), Device::Cuda()),
              StatusIs(Code::kUnimplemented, HasSubstr("CopyTensor: there are no kernels")));
}

TEST(CudaTest, CopyRefusesStrings) {
  const String text = {"a", 1};
  EXPECT_THAT(CopyTensor(TensorView::Scalar(text), Device::Cuda()),
              StatusIs(Code::kInvalidArgument, HasSubstr("from: expected a type of fixed size, got string")));
}

}  // namespace
}  // namespace raggrad::testing
