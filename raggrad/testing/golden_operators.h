// The operators that golden files can be run through: names to functions. A new operator is one entry in the .cc file.
#pragma once

#include <string_view>

#include "raggrad/core/context.h"
#include "raggrad/testing/golden.h"

namespace raggrad::testing {

// Gets the outputs of an operator, one after the other. A view is valid only during the call.
class GoldenOutputs {
 public:
  virtual ~GoldenOutputs() = default;
  virtual void Add(std::string_view name, const GoldenView& output) = 0;
};

// Calls the operator with the case's inputs. Apart from the operator itself it allocates nothing, so that tests can
// make allocation fail; throws GoldenError if the case lacks an input.
using GoldenOperator = Status (*)(const GoldenCase&, const Context&, GoldenOutputs&);

// Null for an operator that this version does not have.
GoldenOperator FindGoldenOperator(std::string_view name);

}  // namespace raggrad::testing
