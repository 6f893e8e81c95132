// Reads the TENSOR of golden.h, for other kinds of files. Unlike golden.h, it needs nlohmann-json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "raggrad/core/tensor.h"

namespace raggrad::testing {

// Throws std::invalid_argument or an exception of the JSON library if it is broken.
Tensor ReadGoldenTensor(const nlohmann::json& value);

}  // namespace raggrad::testing
