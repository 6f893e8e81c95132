// An operand of a fuzzed call, and the ways in which callers get operands wrong.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "raggrad/testing/fuzz_input.h"
#include "raggrad/testing/owned.h"

namespace raggrad::fuzz {

// A tensor of `count` elements, which must be the shape's number of elements.
inline Tensor AnyTensor(FuzzInput& in, DType dtype, Shape shape, int64_t count) {
  if (dtype == DType::kString) return testing::TensorOfStrings(std::move(shape), in.Strings(count));
  Tensor tensor;
  const auto make = [&]<class T>() -> Status {
    if constexpr (std::is_same_v<T, bool>) {
      const std::vector<bool> bits = in.Values<bool>(count);
      tensor = testing::TensorOfBytes(dtype, shape, std::string(bits.begin(), bits.end()));
    } else if constexpr (!std::is_same_v<T, String>) {
      tensor = testing::TensorOf(in.Values<T>(count), shape);
    }
    return {};
  };
  if (Visit(RaggedTypes{}, dtype, make).ok()) return tensor;
  // A type without operators, or no type at all.
  const std::string bytes(static_cast<size_t>(count) * DTypeSize(dtype), '\x5a');
  return testing::TensorOfBytes(dtype, std::move(shape), bytes);
}

// A dimension so large that the tensor must have no elements.
inline int64_t HugeDim(FuzzInput& in) {
  constexpr int64_t kDims[] = {INT64_MAX,       int64_t{1} << 62, int64_t{1} << 61, (int64_t{1} << 60) + 1,
                               INT64_MAX - 100, int64_t{1} << 40, int64_t{1} << 33, int64_t{1} << 31};
  return kDims[in.Below(8)];
}

// Makes some dimensions of a shape without elements huge, but none of those that are 0. The product, taken from the
// left, may then overflow.
inline Shape Stretched(FuzzInput& in, const Shape& shape) {
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  for (int64_t& dim : dims) {
    if (dim != 0 && in.Below(4) != 0) dim = HugeDim(in);
  }
  if (dims.size() < 4 && in.Below(4) == 0) dims.push_back(HugeDim(in));
  return Shape(dims);
}

struct Operand {
  Tensor tensor;
  TensorView view;       // what the operator is given
  bool readable = true;  // false: any operator must answer INVALID_ARGUMENT

  // Rarely makes the view differ from the tensor.
  Operand(FuzzInput& in, Tensor owned) : tensor(std::move(owned)), view(tensor.view()) {
    if (in.OneIn(40)) Disturb(in);
  }

 private:
  void Disturb(FuzzInput& in) {
    const bool has_elements = tensor.shape().NumElements() > 0;
    if (!has_elements && in.Below(2) == 0) {
      view.shape = Stretched(in, view.shape);
      readable = view.shape.NumElements().has_value();
      return;
    }
    switch (in.Below(6)) {
      case 0:
        view.device = Device::Cuda();
        break;
      case 1:  // no data
        view.data = nullptr;
        readable = !has_elements;
        break;
      case 2:  // a negative dimension
        view.shape = Shape{in.Below(2) == 0 ? -1 : INT64_MIN};
        readable = false;
        break;
      case 3:  // too many elements
        view.shape = Shape{int64_t{1} << 40, int64_t{1} << 40};
        readable = false;
        break;
      case 4:  // one dimension more
        view.shape = Shape::WithDim0(1, view.shape.dims());
        break;
      default:  // a scalar
        if (has_elements) view.shape = Shape{};
    }
  }
};

}  // namespace raggrad::fuzz
