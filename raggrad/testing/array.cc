#include "raggrad/testing/array.h"

#include <string>

#include "raggrad/testing/owned.h"

namespace raggrad::testing {

::testing::AssertionResult HoldsBits(const TensorView& got, const TensorView& want) {
  const std::string difference = Difference(got, want);
  return difference.empty() ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << difference;
}

}  // namespace raggrad::testing
