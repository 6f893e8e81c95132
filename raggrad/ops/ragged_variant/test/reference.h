// The obvious serial code: the oracle of tests and fuzzers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
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

// Appends elements [begin, end) of a readable tensor.
inline void ReferenceAppend(const TensorView& tensor, int64_t begin, int64_t end, std::vector<std::string>& to) {
  for (int64_t i = begin; i < end; ++i) {
    if (tensor.dtype == DType::kString) {
      const String& value = tensor.As<String>()[i];
      to.emplace_back(value.data, value.size);
    } else {
      const size_t size = DTypeSize(tensor.dtype);
      to.emplace_back(tensor.As<char>() + static_cast<size_t>(i) * size, size);
    }
  }
}

inline std::vector<int64_t> ReferenceNumbers(const TensorView& splits) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < splits.shape.NumElements().value(); ++i) {
    numbers.push_back(splits.dtype == DType::kInt32 ? splits.As<int32_t>()[i] : splits.As<int64_t>()[i]);
  }
  return numbers;
}

struct ReferenceRagged {
  std::vector<std::vector<int64_t>> splits;
  ReferenceOutput values;
};

struct ReferenceVariant {
  Shape shape;
  std::vector<ReferenceRagged> elements;
};

// Each of the following gives the operator's result, or nothing if the operator must return INVALID_ARGUMENT. All
// operands must be readable, and of dtypes that the operator has.

inline std::optional<ReferenceVariant> ReferenceToVariant(std::span<const TensorView> nested_splits,
                                                          const TensorView& values, bool batched) {
  if (values.rank() == 0 && (batched || !nested_splits.empty())) return std::nullopt;
  ReferenceRagged whole{{}, {values.shape, {}}};
  for (size_t i = 0; i < nested_splits.size(); ++i) {
    const bool last = i + 1 == nested_splits.size();
    if (nested_splits[i].rank() != 1 || (!last && nested_splits[i + 1].rank() != 1)) return std::nullopt;
    const int64_t below = last ? values.dim(0) : nested_splits[i + 1].dim(0) - 1;
    const std::vector<int64_t>& splits = whole.splits.emplace_back(ReferenceNumbers(nested_splits[i]));
    if (splits.empty() || splits.front() != 0 || splits.back() != below) return std::nullopt;
    for (size_t j = 1; j < splits.size(); ++j) {
      if (splits[j] < splits[j - 1]) return std::nullopt;
    }
  }
  const int64_t total = values.shape.NumElements().value();
  if (!batched) {
    ReferenceAppend(values, 0, total, whole.values.values);
    return ReferenceVariant{Shape{}, {whole}};
  }
  const int64_t rows = nested_splits.empty() ? values.dim(0) : nested_splits[0].dim(0) - 1;
  ReferenceVariant variant{Shape{rows}, {}};
  for (int64_t row = 0; row < rows; ++row) {
    ReferenceRagged element;
    int64_t begin = row, end = row + 1;
    for (size_t level = 0; level < whole.splits.size(); ++level) {
      const std::vector<int64_t>& splits = whole.splits[level];
      if (level > 0) {
        std::vector<int64_t>& own = element.splits.emplace_back();
        for (int64_t i = begin; i <= end; ++i) {
          own.push_back(splits[static_cast<size_t>(i)] - splits[static_cast<size_t>(begin)]);
        }
      }
      begin = splits[static_cast<size_t>(begin)];
      end = splits[static_cast<size_t>(end)];
    }
    const int64_t width = values.dim(0) == 0 ? 0 : total / values.dim(0);
    ReferenceAppend(values, begin * width, end * width, element.values.values);
    element.values.shape =
        nested_splits.empty() ? Shape(values.shape.tail()) : Shape::WithDim0(end - begin, values.shape.tail());
    variant.elements.push_back(std::move(element));
  }
  return variant;
}

inline std::optional<ReferenceRagged> ReferenceFromVariant(const VariantArrayView& encoded, int64_t input_rank,
                                                           int64_t output_rank, DType values_dtype,
                                                           DType splits_dtype) {
  const int64_t dims = encoded.shape.rank();
  const int64_t n = static_cast<int64_t>(encoded.elements.size());
  if (encoded.shape.NumElements() != n || input_rank < -1 || output_rank < 0) return std::nullopt;
  const bool stack = output_rank == 0 && input_rank <= 0;
  if (input_rank == -1) input_rank = stack ? 0 : output_rank - dims;
  if (input_rank < 0 || (!stack && input_rank + dims != output_rank)) return std::nullopt;
  for (const std::optional<RaggedView>& element : encoded.elements) {
    if (!element || static_cast<int64_t>(element->nested_splits.size()) != input_rank) return std::nullopt;
    if (element->values.dtype != values_dtype || (output_rank > 0 && element->values.rank() == 0)) return std::nullopt;
    for (const TensorView& splits : element->nested_splits) {
      if (splits.dtype != splits_dtype || splits.rank() != 1 || (dims > 0 && splits.dim(0) == 0)) return std::nullopt;
    }
    const Shape &shape = element->values.shape, &first = encoded.elements[0]->values.shape;
    if (stack ? shape != first : shape.rank() != first.rank() || !std::ranges::equal(shape.tail(), first.tail())) {
      return std::nullopt;
    }
  }
  ReferenceRagged result;
  const auto narrow = [&](uint64_t x) {
    return splits_dtype == DType::kInt32 ? static_cast<int32_t>(static_cast<uint32_t>(x)) : static_cast<int64_t>(x);
  };
  int64_t rows = 0;
  for (const auto& element : encoded.elements) {
    ReferenceAppend(element->values, 0, element->values.shape.NumElements().value(), result.values.values);
    if (!stack && dims > 0) rows += element->values.dim(0);
  }
  if (dims == 0) {
    for (const TensorView& splits : encoded.elements[0]->nested_splits) {
      result.splits.push_back(ReferenceNumbers(splits));
    }
    result.values.shape = encoded.elements[0]->values.shape;
    return result;
  }
  result.values.shape = n == 0 ? Shape{0}
                               : Shape::WithDim0(stack ? n : rows, stack ? encoded.elements[0]->values.shape.dims()
                                                                         : encoded.elements[0]->values.shape.tail());
  if (stack) return result;
  for (int level = 0; level + 1 < dims; ++level) {
    std::vector<int64_t>& splits = result.splits.emplace_back();
    for (int64_t i = 0; i <= encoded.shape[level]; ++i) splits.push_back(i * encoded.shape[level + 1]);
  }
  std::vector<int64_t> lengths{0};
  for (const auto& element : encoded.elements) {
    lengths.push_back(lengths.back() +
                      (input_rank == 0 ? element->values.dim(0) : element->nested_splits[0].dim(0) - 1));
  }
  result.splits.push_back(lengths);
  for (size_t level = 0; level < static_cast<size_t>(input_rank); ++level) {
    std::vector<int64_t> splits{0};
    for (const auto& element : encoded.elements) {
      const uint64_t offset = static_cast<uint64_t>(splits.back());
      const std::vector<int64_t> own = ReferenceNumbers(element->nested_splits[level]);
      for (size_t i = 1; i < own.size(); ++i) splits.push_back(narrow(offset + static_cast<uint64_t>(own[i])));
    }
    result.splits.push_back(splits);
  }
  return result;
}

// dense_values_shape must be int32, row_splits int32 or int64. Callers keep row_splits small, because zeros for missing
// elements are really made.
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
    ReferenceAppend(values, 0, *count, output.values);
    if (n == 1) output.shape = values.shape;
  }
  if (n != 1 && output.values.size() != static_cast<size_t>(wanted)) return std::nullopt;
  return output;
}

}  // namespace raggrad::ragged_variant
