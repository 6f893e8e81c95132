// The operators that golden files can be run through: names to functions. A new operator is one entry in the .cc file.
#pragma once

#include <array>
#include <string_view>

#include "raggrad/core/context.h"
#include "raggrad/testing/golden.h"

namespace raggrad::testing {

struct NamedTensor {
  std::string_view name;  // empty: not there
  Tensor tensor;
};
using GoldenOutputs = std::array<NamedTensor, 2>;

// Calls the operator with the case's inputs. Apart from the operator itself it allocates nothing, so that tests can
// make allocation fail; throws GoldenError if the case lacks an input.
using GoldenOperator = Result<GoldenOutputs> (*)(const GoldenCase&, const Context&);

// Null for an operator that this version does not have.
GoldenOperator FindGoldenOperator(std::string_view name);

}  // namespace raggrad::testing
