// Checks of operands that the three operators share. Internal to the family.
#pragma once

#include <optional>
#include <string_view>

#include "raggrad/core/error_text.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor_view.h"

namespace raggrad::batching {

// The types that TensorFlow can concatenate.
using BatchingTypes = JoinLists<NumberTypes, TypeList<bool, String>>;

// INVALID_ARGUMENT with TensorFlow's text, which names the type by its number, for a type that is not one of these.
Status CheckSupported(std::string_view op, DType dtype) noexcept;

// Checks that input number `position` has the type that TensorFlow's signature asks for.
Status CheckInputType(std::string_view op, int position, std::string_view name, DType expected, DType got) noexcept;

// Checks that no string has a size but no characters. TensorFlow's strings never do.
Status CheckStringData(std::string_view op, std::string_view name, const TensorView& view) noexcept;

// Checks that a piece has the type of the call that gets it.
Status CheckExpectedType(std::string_view op, DType expected, DType got) noexcept;

// Reads a scalar int64 id. For another shape, TensorFlow's error: "<prefix>Tensor<type: int64 ...><suffix>".
Result<int64_t> ReadId(std::string_view op, const TensorView& id, std::string_view prefix,
                       std::string_view suffix) noexcept;

// Checks that pieces of rank 1 or more can be joined along dimension 0. All others must match the first.
class PieceFit {
 public:
  // Checks rank, inner dimensions, dtype, device and the sum of the rows, in this order. Messages call the piece `row`.
  Status Add(std::string_view op, int64_t row, const TensorView& piece) noexcept;

 private:
  std::optional<int64_t> first_row_;
  Shape shape_;
  DType dtype_ = DType::kInvalid;
  Device device_;
  int64_t rows_ = 0;
};

}  // namespace raggrad::batching
