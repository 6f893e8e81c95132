// What the checks hand to a backend. Internal to the family.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "raggrad/ops/ragged_variant/ragged_variant.h"

namespace raggrad::ragged_variant {

// Operands of the gradient whose shapes and types have been checked, but for the elements: there may be millions of
// them, so a backend has each looked at (CountValues) while it lays them out. Only Check() in ragged_variant.cc makes
// one.
struct Problem {
  std::string_view op;  // for messages
  std::span<const std::optional<RaggedView>> elements;
  TensorView row_splits;  // a vector that is not empty, or a scalar, which nobody reads; on any device
  Shape dense_shape;      // what dense_values_shape says; has an element count
  DType dtype;            // of the values: one of RaggedTypes
  Device device;          // where all values have to be

  int64_t n() const noexcept { return static_cast<int64_t>(elements.size()); }
};

// How many values element i has or, if it is missing, stands for. `rows` is row_splits[i + 1] - row_splits[i], nothing
// if row_splits has no such entries; it only matters to missing elements. Faults of the numbers in row_splits go before
// those of elements: that is TensorFlow's order.
Result<int64_t> CountValues(const Problem& problem, int64_t i, std::optional<int64_t> rows) noexcept;

// The shape of the result, given the sum of all counts (nothing if it exceeds 2^63 - 1), or the error that the sum is
// not what dense_values_shape asks for. `rows` as above, for element 0.
Result<Shape> OutputShape(const Problem& problem, std::optional<int64_t> total, std::optional<int64_t> rows) noexcept;

// Operands of RaggedTensorToVariant. All can be read, splits where the values are or in host memory; types are checked.
// What is left is each level of splits, its shape and its numbers, from the innermost outwards: that is TensorFlow's
// order.
struct ToVariantProblem {
  std::string_view op;
  std::span<const TensorView> splits;  // outermost first, all of one type
  TensorView values;                   // of rank 1 at least if there are splits, or if it is cut
  bool batched;

  int64_t levels() const noexcept { return static_cast<int64_t>(splits.size()); }
  const TensorView& level(int64_t i) const noexcept { return splits[static_cast<size_t>(i)]; }
};

// "rt_nested_splits[3]"
class LevelName {
 public:
  explicit LevelName(int64_t level) noexcept;
  operator std::string_view() const noexcept { return {text_, size_}; }  // NOLINT: implicit, to be passed as a name

 private:
  char text_[48];
  size_t size_;
};

// Operands of RaggedTensorFromVariant whose attributes fit the rank of the array. Elements have not been looked at.
struct FromVariantProblem {
  std::string_view op;
  Shape shape;  // of the array
  std::span<const std::optional<RaggedView>> elements;
  int64_t input_ragged_rank;  // of every element
  int64_t output_ragged_rank;
  DType values_dtype;
  DType splits_dtype;
  Device device;  // where all values have to be; splits are in host memory
  void* stream;   // of that device

  int64_t n() const noexcept { return static_cast<int64_t>(elements.size()); }
  // Call only for elements that CheckElement has found good.
  const RaggedView& element(int64_t i) const noexcept { return *elements[static_cast<size_t>(i)]; }
};

// Checks of one element, in TensorFlow's order: each is made for all elements before the next. The last three are only
// for arrays of rank 1 and more; they compare with element 0.
Status CheckElement(const FromVariantProblem& problem, int64_t i) noexcept;
Status CheckSplitsHaveAFirst(const FromVariantProblem& problem, int64_t i) noexcept;
Status CheckValuesRank(const FromVariantProblem& problem, int64_t i) noexcept;
Status CheckValuesShape(const FromVariantProblem& problem, int64_t i) noexcept;

// The form of splits that must be a vector, and not empty.
Status CheckSplitsShape(std::string_view op, std::string_view argument, const TensorView& splits) noexcept;

// That the shape of a variant array tells the number of its elements.
Status CheckVariantShape(std::string_view op, std::string_view argument, const VariantArrayView& encoded) noexcept;

// TensorFlow's messages call two types by other names than its Python does.
std::string_view MessageName(DType dtype) noexcept;

// That there are kernels for values of that type on that device.
Status CheckDevice(std::string_view op, Device device, DType values_dtype) noexcept;

// The same code for all devices: what differs is the copy of the values (values.h).
namespace on_cpu {
Result<Tensor> ToVariantGradient(const Problem& problem, const Context& ctx) noexcept;
Result<VariantArray> ToVariant(const ToVariantProblem& problem, const Context& ctx) noexcept;
Result<Ragged> FromVariant(const FromVariantProblem& problem, const Context& ctx) noexcept;
}  // namespace on_cpu

}  // namespace raggrad::ragged_variant
