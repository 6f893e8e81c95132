#include "raggrad/ops/batching/checks.h"

#include <algorithm>
#include <new>
#include <string>

#include "raggrad/cpu/strings.h"

namespace raggrad::batching {
namespace {

// The first `limit` values, with brackets around the rows of ranks above 1, as TensorFlow's messages show them.
void AppendValues(std::string& text, const TensorView& view, int dim, int64_t limit, int64_t& next) {
  const bool innermost = dim == view.rank() - 1;
  for (int64_t i = 0; i < view.dim(dim); ++i) {
    if (next >= limit) {
      if (innermost && dim > 0) text.append("...");
      return;
    }
    if (innermost) {
      if (i > 0) text.push_back(' ');
      AppendText(text, view.As<int64_t>()[next++]);
    } else {
      text.push_back('[');
      AppendValues(text, view, dim + 1, limit, next);
      text.push_back(']');
    }
  }
}

// TensorFlow's messages have other names for two types than its interface.
std::string_view NameInMessages(DType dtype) noexcept {
  if (dtype == DType::kFloat32) return "float";
  if (dtype == DType::kFloat64) return "double";
  return DTypeName(dtype);
}

}  // namespace

Result<int64_t> ReadId(std::string_view op, const TensorView& id, std::string_view prefix,
                       std::string_view suffix) noexcept {
  if (id.rank() == 0) return *id.As<int64_t>();
  try {
    std::string values;
    const int64_t count = id.shape.NumElements().value_or(0);
    const int64_t limit = std::min<int64_t>(count, 3);
    int64_t next = 0;
    AppendValues(values, id, 0, limit, next);
    if (count > limit) values.append("...");
    return InvalidArgument(op, prefix, "Tensor<type: int64 shape: ", id.shape, " values: ", values, ">", suffix);
  } catch (const std::bad_alloc&) {
    return Status(Code::kInvalidArgument, {});
  }
}

Status CheckInputType(std::string_view op, int position, std::string_view name, DType expected, DType got) noexcept {
  if (got == expected) return {};
  return InvalidArgument(op, "cannot compute ", op, " as input #", position, "(zero-based) was expected to be a ",
                         NameInMessages(expected), " tensor but is a ", NameInMessages(got), " tensor [", name, "]");
}

Status CheckStringData(std::string_view op, std::string_view name, const TensorView& view) noexcept {
  if (view.dtype != DType::kString) return {};
  const auto count = static_cast<size_t>(view.shape.NumElements().value_or(0));
  return cpu::CheckStrings(op, name, {view.As<String>(), count}, SerialExecutor());
}

Status CheckExpectedType(std::string_view op, DType expected, DType got) noexcept {
  if (got == expected) return {};
  return InvalidArgument(op, "Type mismatch: actual ", NameInMessages(got), " vs. expect ", NameInMessages(expected));
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
