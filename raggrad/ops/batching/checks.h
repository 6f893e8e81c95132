// What the three operators ask of their operands. Internal to the family.
#pragma once

#include <optional>
#include <string_view>

#include "raggrad/core/error_text.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor_view.h"

namespace raggrad::batching {

// Numbers, bool and string: what TensorFlow can concatenate.
using BatchingTypes = JoinLists<NumberTypes, TypeList<bool, String>>;

// INVALID_ARGUMENT with TensorFlow's text, which has the number of the type.
Status CheckSupported(std::string_view op, DType dtype) noexcept;

// Input number `position` has the type that TensorFlow's signature asks for.
Status CheckInputType(std::string_view op, int position, std::string_view name, DType expected, DType got) noexcept;

// Strings in host memory have characters where they say so. TensorFlow's always do.
Status CheckStringData(std::string_view op, std::string_view name, const TensorView& view) noexcept;

// A piece has the type of the call that gets it.
Status CheckExpectedType(std::string_view op, DType expected, DType got) noexcept;

// Reads a scalar int64 id, or says what TensorFlow says of another shape ("<prefix>Tensor<type: int64 ...>").
Result<int64_t> ReadId(std::string_view op, const TensorView& id, std::string_view prefix,
                       std::string_view suffix) noexcept;

// Whether pieces of rank 1 and more can be joined along dimension 0. The first one is the measure for the others.
class PieceFit {
 public:
  // Rank, inner dimensions, dtype, device and the sum of the rows, in this order. `row` is the piece's number in
  // messages.
  Status Add(std::string_view op, int64_t row, const TensorView& piece) noexcept;

 private:
  std::optional<int64_t> first_row_;
  Shape shape_;
  DType dtype_ = DType::kInvalid;
  Device device_ = Device::kCpu;
  int64_t rows_ = 0;
};

}  // namespace raggrad::batching
