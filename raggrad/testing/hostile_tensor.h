// A tensor of any element type, filled with values that break things.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "raggrad/testing/generators.h"
#include "raggrad/testing/owned.h"

namespace raggrad::testing {

template <class T>
Tensor HostileTensor(Generator& random, Shape shape) {
  const int64_t count = shape.NumElements().value_or(0);
  if constexpr (std::is_same_v<T, String>) {
    return TensorOfStrings(std::move(shape), random.Strings(count, 12));
  } else if constexpr (std::is_same_v<T, bool>) {
    std::string bytes;
    for (int64_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(random.Below(2)));
    return TensorOfBytes(DType::kBool, std::move(shape), bytes);
  } else {
    return TensorOf(random.HostileValues<T>(count), std::move(shape));
  }
}

}  // namespace raggrad::testing
