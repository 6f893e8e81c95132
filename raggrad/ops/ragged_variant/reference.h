// The obvious serial code: the oracle of tests and fuzzers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "raggrad/core/ragged.h"

namespace raggrad::ragged_variant {

// Every value as its own bytes (a string as its characters), so that one type serves all 21.
struct ReferenceOutput {
  Shape shape;
  std::vector<std::string> values;
};

// The product, or -1 if it leaves [0, 2^63) on the way.
inline int64_t ReferenceProduct(const std::vector<int64_t>& dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) {
    if (dim < 0 || (dim > 0 && product > INT64_MAX / dim)) return -1;
    product *= dim;
  }
  return product;
}

// The result, or nothing where the operator answers INVALID_ARGUMENT. dense_values_shape must be int32, row_splits
// int32 or int64, dtype one of the ragged types; zeros for missing elements are really made, so callers keep row_splits
// small.
inline std::optional<ReferenceOutput> ReferenceToVariantGradient(const VariantArrayView& encoded,
                                                                 const TensorView& row_splits,
                                                                 const TensorView& dense_values_shape, DType dtype) {
  const size_t n = encoded.elements.size();
  const std::optional<int64_t> shape_count = encoded.shape.NumElements();
  if (!shape_count || static_cast<size_t>(*shape_count) != n) return std::nullopt;

  if (dense_values_shape.rank() != 1 || dense_values_shape.dim(0) > Shape::kMaxRank) return std::nullopt;
  std::vector<int64_t> dense;
  for (int64_t i = 0; i < dense_values_shape.dim(0); ++i) dense.push_back(dense_values_shape.As<int32_t>()[i]);
  const int64_t wanted = ReferenceProduct(dense);
  if (wanted < 0) return std::nullopt;

  if (row_splits.rank() > 1 || (row_splits.rank() == 1 && row_splits.dim(0) == 0)) return std::nullopt;
  std::vector<int64_t> splits;
  for (int64_t i = 0; row_splits.rank() == 1 && i < row_splits.dim(0); ++i) {
    splits.push_back(row_splits.dtype == DType::kInt32 ? row_splits.As<int32_t>()[i] : row_splits.As<int64_t>()[i]);
    if (i == 0 ? splits[0] != 0 : splits.back() < splits[splits.size() - 2]) return std::nullopt;
  }

  ReferenceOutput output{Shape(std::span<const int64_t>(dense)), {}};
  for (size_t i = 0; i < n; ++i) {
    if (!encoded.elements[i]) {
      std::vector<int64_t> zeros = dense;
      if (row_splits.rank() == 1) {
        if (i + 1 >= splits.size() || dense.empty()) return std::nullopt;
        zeros[0] = splits[i + 1] - splits[i];
      } else if (n > 1) {
        return std::nullopt;
      }
      const int64_t count = ReferenceProduct(zeros);
      if (count < 0 || (n > 1 && count > wanted)) return std::nullopt;
      const std::string zero(dtype == DType::kString ? 0 : DTypeSize(dtype), '\0');
      output.values.insert(output.values.end(), static_cast<size_t>(count), zero);
      if (n == 1) output.shape = Shape(std::span<const int64_t>(zeros));
      continue;
    }
    const TensorView& values = encoded.elements[i]->values;
    const std::optional<int64_t> count = values.shape.NumElements();
    if (values.dtype != dtype || !count) return std::nullopt;
    for (size_t j = 0; j < static_cast<size_t>(*count); ++j) {
      if (dtype == DType::kString) {
        const String& value = values.As<String>()[j];
        output.values.emplace_back(value.data, value.size);
      } else {
        output.values.emplace_back(values.As<char>() + j * DTypeSize(dtype), DTypeSize(dtype));
      }
    }
    if (n == 1) output.shape = values.shape;
  }
  if (n != 1 && output.values.size() != static_cast<size_t>(wanted)) return std::nullopt;
  return output;
}

}  // namespace raggrad::ragged_variant
