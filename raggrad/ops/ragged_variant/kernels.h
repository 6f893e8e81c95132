// The interface between checks and backend: checked operands in, results out. Internal to the family.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "raggrad/ops/ragged_variant/ragged_variant.h"

namespace raggrad::ragged_variant {

// Operands of the gradient whose shapes and types have been checked, except those of the elements. There may be
// millions of elements, so the backend checks each with CountValues while it lays them out. Only Check() in grad.cc
// makes one.
struct GradProblem {
  std::string_view op;  // for messages
  std::span<const std::optional<RaggedView>> elements;
  TensorView row_splits;  // a vector that is not empty, or a scalar, which is never read; on any device
  Shape dense_shape;      // dense_values_shape, whose element count does not overflow
  DType dtype;            // of the values: one of RaggedTypes
  Device device;          // of all values

  int64_t n() const noexcept { return static_cast<int64_t>(elements.size()); }
};

// The number of values that element i has or, if it is missing, stands for; or the fault of the element. `rows` is
// row_splits[i + 1] - row_splits[i], nothing if row_splits is too short; only missing elements need it. In TensorFlow's
// order, faults of the numbers in row_splits are reported before those of elements.
Result<int64_t> CountValues(const GradProblem& problem, int64_t i, std::optional<int64_t> rows) noexcept;

// The shape of the result, or the error that the elements do not fill dense_values_shape. `total` is the sum of all
// counts, nothing if that exceeds 2^63 - 1. `rows` is as above, for element 0.
Result<Shape> OutputShape(const GradProblem& problem, std::optional<int64_t> total,
                          std::optional<int64_t> rows) noexcept;

// Operands of RaggedTensorToVariant, whose types have been checked. All are readable; splits are where the values are
// or in host memory. The backend still has to check shape and numbers of each level of splits, from the innermost
// outwards, which is TensorFlow's order.
struct ToVariantProblem {
  std::string_view op;
  std::span<const TensorView> splits;  // outermost first, all of one type
  TensorView values;                   // of rank 1 or more if there are splits or `batched`
  bool batched;                        // cut into rows

  int64_t levels() const noexcept { return static_cast<int64_t>(splits.size()); }
  const TensorView& level(int64_t i) const noexcept { return splits[static_cast<size_t>(i)]; }
};

// The name of a level in messages: "rt_nested_splits[3]".
class LevelName {
 public:
  explicit LevelName(int64_t level) noexcept;
  operator std::string_view() const noexcept { return {text_, size_}; }  // NOLINT: implicit, to be passed as a name

 private:
  char text_[48];
  size_t size_;
};

// Operands of RaggedTensorFromVariant, whose attributes fit the rank of the array. Elements have not been checked.
struct FromVariantProblem {
  std::string_view op;
  Shape shape;  // of the array
  std::span<const std::optional<RaggedView>> elements;
  int64_t input_ragged_rank;  // of every element
  int64_t output_ragged_rank;
  DType values_dtype;
  DType splits_dtype;
  Device device;  // of all values; splits are in host memory
  void* stream;   // of that device

  int64_t n() const noexcept { return static_cast<int64_t>(elements.size()); }
  // Call only for elements that have passed CheckElement.
  const RaggedView& element(int64_t i) const noexcept { return *elements[static_cast<size_t>(i)]; }
};

// Checks of one element, in TensorFlow's order: each is made for all elements before the next one is. The last three
// are only for arrays of rank 1 or more; the last two compare with element 0.
Status CheckElement(const FromVariantProblem& problem, int64_t i) noexcept;
Status CheckSplitsAreNotEmpty(const FromVariantProblem& problem, int64_t i) noexcept;
Status CheckValuesRank(const FromVariantProblem& problem, int64_t i) noexcept;
Status CheckValuesShape(const FromVariantProblem& problem, int64_t i) noexcept;

// Checks that splits are a vector, and not empty.
Status CheckSplitsShape(std::string_view op, std::string_view argument, const TensorView& splits) noexcept;

// Checks that a variant array has as many elements as its shape says.
Status CheckVariantShape(std::string_view op, std::string_view argument, const VariantArrayView& encoded) noexcept;

// Checks that there are kernels for values of that type on that device.
Status CheckDevice(std::string_view op, Device device, DType values_dtype) noexcept;

// One backend serves all devices: only the copy of the values differs (values.h).
namespace on_cpu {
Result<Tensor> ToVariantGradient(const GradProblem& problem, const Context& ctx) noexcept;
Result<VariantArray> ToVariant(const ToVariantProblem& problem, const Context& ctx) noexcept;
Result<Ragged> FromVariant(const FromVariantProblem& problem, const Context& ctx) noexcept;
}  // namespace on_cpu

}  // namespace raggrad::ragged_variant
