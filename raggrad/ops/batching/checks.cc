#include "raggrad/ops/batching/checks.h"

#include <algorithm>

#include "raggrad/cpu/strings.h"
#include "raggrad/cpu/tensor_text.h"

namespace raggrad::batching {

Result<int64_t> ReadId(std::string_view op, const TensorView& id, std::string_view prefix,
                       std::string_view suffix) noexcept {
  if (id.rank() == 0) return *id.As<int64_t>();
  return InvalidArgument(op, prefix, cpu::TensorText{id}, suffix);
}

Status CheckInputType(std::string_view op, int position, std::string_view name, DType expected, DType got) noexcept {
  if (got == expected) return {};
  return InvalidArgument(op, "cannot compute ", op, " as input #", position, "(zero-based) was expected to be a ",
                         cpu::MessageName(expected), " tensor but is a ", cpu::MessageName(got), " tensor [", name,
                         "]");
}

Status CheckStringData(std::string_view op, std::string_view name, const TensorView& view) noexcept {
  if (view.dtype != DType::kString) return {};
  const auto count = static_cast<size_t>(view.shape.NumElements().value_or(0));
  return cpu::CheckStrings(op, name, {view.As<String>(), count}, SerialExecutor());
}

Status CheckExpectedType(std::string_view op, DType expected, DType got) noexcept {
  if (got == expected) return {};
  return InvalidArgument(op, "Type mismatch: actual ", cpu::MessageName(got), " vs. expect ",
                         cpu::MessageName(expected));
}

Status CheckSupported(std::string_view op, DType dtype) noexcept {
  if (Contains(BatchingTypes{}, dtype)) return {};
  return InvalidArgument(op, "Unsupported data type: ", static_cast<int32_t>(dtype), " [", dtype, "]");
}

Status PieceFit::Add(std::string_view op, int64_t row, const TensorView& piece) noexcept {
  if (!first_row_) {
    first_row_ = row;
    shape_ = piece.shape;
    dtype_ = piece.dtype;
    device_ = piece.device;
  }
  const auto misfit = [&](std::string_view text, std::string_view what, const auto& first, const auto& got) {
    return InvalidArgument(op, text, what, "[", *first_row_, "] = ", first, " vs. ", what, "[", row, "] = ", got);
  };
  if (piece.rank() != shape_.rank()) {
    return misfit("Ranks of all input tensors should match: ", "shape", shape_, piece.shape);
  }
  if (!std::ranges::equal(piece.shape.tail(), shape_.tail())) {
    return misfit("Dimensions of inputs should match: ", "shape", shape_, piece.shape);
  }
  if (piece.dtype != dtype_) return misfit("Types of inputs should match: ", "type", dtype_, piece.dtype);
  if (piece.device != device_) {
    return misfit("pieces are on different devices: ", "device", device_, piece.device);
  }
  if (__builtin_add_overflow(rows_, piece.dim(0), &rows_)) {
    return InvalidArgument(op, "the rows of the pieces add up to more than 2^63 - 1 [piece ", row, "]");
  }
  return {};
}

}  // namespace raggrad::batching
