// What the checks hand to a backend. Internal to the family.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "raggrad/ops/ragged_variant/ragged_variant.h"

namespace raggrad::ragged_variant {

// Operands whose shapes and types have been checked, but for the elements: there may be millions of them, so a backend
// has each looked at (CountValues) while it lays them out. Only Check() in ragged_variant.cc makes one.
struct Problem {
  std::string_view op;  // for messages
  std::span<const std::optional<RaggedView>> elements;
  TensorView row_splits;  // a vector that is not empty, or a scalar, which nobody reads
  Shape dense_shape;      // what dense_values_shape says; has an element count
  DType dtype;            // of the values: one of RaggedTypes

  int64_t n() const noexcept { return static_cast<int64_t>(elements.size()); }
};

// How many values element i has or, if it is missing, stands for. `rows` is row_splits[i + 1] - row_splits[i], nothing
// if row_splits has no such entries; it only matters to missing elements. To be called after the numbers in row_splits
// have been checked: that is TensorFlow's order.
Result<int64_t> CountValues(const Problem& problem, int64_t i, std::optional<int64_t> rows) noexcept;

// The shape of the result, given the sum of all counts (nothing if it exceeds 2^63 - 1), or the error that the sum is
// not what dense_values_shape asks for. `rows` as above, for element 0.
Result<Shape> OutputShape(const Problem& problem, std::optional<int64_t> total, std::optional<int64_t> rows) noexcept;

namespace cpu {
Result<Tensor> ToVariantGradient(const Problem& problem, const Context& ctx) noexcept;
}  // namespace cpu

}  // namespace raggrad::ragged_variant
