// Tensors of random elements, of a dtype known only at run time: tests that use them are compiled once for all types.
#pragma once

#include "raggrad/testing/generators.h"
#include "raggrad/testing/owned.h"

namespace raggrad::testing {

// Ordinary values (Generator::Values).
Tensor RandomTensor(Generator& random, DType dtype, Shape shape);
// Values that break things (Generator::HostileValues).
Tensor HostileTensor(Generator& random, DType dtype, Shape shape);

}  // namespace raggrad::testing
