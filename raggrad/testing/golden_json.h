// The TENSOR of golden.h, for readers of other kinds of files. Needs nlohmann-json, as golden.h does not.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "raggrad/core/tensor.h"

namespace raggrad::testing {

// Throws std::invalid_argument or an exception of the JSON library if it is broken.
Tensor ReadGoldenTensor(const nlohmann::json& value);

}  // namespace raggrad::testing
