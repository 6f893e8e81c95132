#include "raggrad/testing/random_tensor.h"

#include <cstdlib>
#include <string>
#include <type_traits>
#include <utility>

namespace raggrad::testing {
namespace {

Tensor MakeTensor(Generator& random, DType dtype, Shape shape, bool hostile) {
  const int64_t count = shape.NumElements().value_or(0);
  Result<Tensor> tensor = Visit(RaggedTypes{}, dtype, [&]<class T>() -> Result<Tensor> {
    if constexpr (std::is_same_v<T, String>) {
      return TensorOfStrings(std::move(shape), random.Strings(count, 12));
    } else if constexpr (std::is_same_v<T, bool>) {
      std::string bytes;
      for (int64_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(random.Below(2)));
      return TensorOfBytes(DType::kBool, std::move(shape), bytes);
    } else {
      return TensorOf(hostile ? random.HostileValues<T>(count) : random.Values<T>(count), std::move(shape));
    }
  });
  if (!tensor.ok()) std::abort();  // a dtype without a C++ type
  return *std::move(tensor);
}

}  // namespace

Tensor RandomTensor(Generator& random, DType dtype, Shape shape) {
  return MakeTensor(random, dtype, std::move(shape), /*hostile=*/false);
}

Tensor HostileTensor(Generator& random, DType dtype, Shape shape) {
  return MakeTensor(random, dtype, std::move(shape), /*hostile=*/true);
}

}  // namespace raggrad::testing
