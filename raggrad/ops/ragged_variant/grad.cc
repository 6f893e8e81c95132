#include <algorithm>
#include <array>
#include <charconv>

#include "raggrad/core/error_text.h"
#include "raggrad/core/operands.h"
#include "raggrad/cpu/tensor_text.h"
#include "raggrad/cuda/batched_copy.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/ragged_variant/kernels.h"
#include "raggrad/ops/ragged_variant/ragged_variant.h"

namespace raggrad {
namespace ragged_variant {
namespace {

using cpu::MessageName;

constexpr std::string_view kOp = "RaggedTensorToVariantGradient";

// Reads dense_values_shape, which is in host memory whatever the device of the values.
Result<Shape> ReadDenseShape(const TensorView& dense_values_shape) noexcept {
  if (dense_values_shape.rank() != 1) {
    return InvalidArgument(kOp, "dense_values_shape must be a vector [dense_values_shape: expected rank 1, got shape ",
                           dense_values_shape.shape, "]");
  }
  const int64_t rank = dense_values_shape.dim(0);
  if (rank > Shape::kMaxRank) {
    return InvalidArgument(kOp, "Too many dimensions [dense_values_shape: expected at most ", Shape::kMaxRank,
                           " elements, got ", rank, "]");
  }
  std::array<int64_t, Shape::kMaxRank> dims;
  for (int64_t i = 0; i < rank; ++i) dims[static_cast<size_t>(i)] = dense_values_shape.As<int32_t>()[i];
  const Shape shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(rank)));
  if (!shape.valid()) return MakeError(Code::kResourceExhausted, kOp, ": no memory for a shape [dense_values_shape]");
  int64_t product = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] < 0) {
      return InvalidArgument(kOp, "Dimension ", shape[i], " must be >= 0 [dense_values_shape[", i,
                             "]: expected at least 0, got ", shape[i], "]");
    }
    if (__builtin_mul_overflow(product, shape[i], &product)) {
      return InvalidArgument(kOp, "Shape ", shape, " would have more than 2**63 - 1 elements [dense_values_shape]");
    }
  }
  return shape;
}

// The device of the values: that of row_splits or, as row_splits may be in host memory, of the first element there is.
Device DeviceOf(const VariantArrayView& encoded, const TensorView& row_splits) noexcept {
  if (!row_splits.device.is_cpu()) return row_splits.device;
  const auto present = std::ranges::find_if(encoded.elements, [](const auto& element) { return element.has_value(); });
  return present == encoded.elements.end() ? Device::Cpu() : (*present)->values.device;
}

// Checks in TensorFlow's order: the first fault decides about the error.
Result<GradProblem> Check(const VariantArrayView& encoded, const TensorView& row_splits,
                          const TensorView& dense_values_shape, DType values_dtype) noexcept {
  if (Status s = CheckDType(kOp, "row_splits", row_splits.dtype, IndexTypes{}); !s.ok()) return s;
  if (Status s = CheckDType(kOp, "dense_values_shape", dense_values_shape.dtype, TypeList<int32_t>{}); !s.ok()) {
    return s;
  }
  if (Status s = CheckDType(kOp, "values_dtype", values_dtype, RaggedTypes{}); !s.ok()) return s;
  if (Status s = CheckVariantShape(kOp, "encoded_ragged_grad", encoded); !s.ok()) return s;
  if (Status s = CheckOperands(kOp, {{"row_splits", row_splits}}); !s.ok()) return s;
  if (Status s = CheckOperands(kOp, {{"dense_values_shape", dense_values_shape}}); !s.ok()) return s;
  if (!dense_values_shape.device.is_cpu()) {
    return InvalidArgument(kOp, "dense_values_shape must be in host memory [dense_values_shape: got ",
                           dense_values_shape.device, "]");
  }
  Result<Shape> dense_shape = ReadDenseShape(dense_values_shape);
  if (!dense_shape.ok()) return dense_shape.status();
  if (row_splits.rank() != 0) {  // TensorFlow passes a scalar, of any value, for a tensor without splits
    if (Status s = CheckSplitsShape(kOp, "row_splits", row_splits); !s.ok()) return s;
  }
  return GradProblem{
      kOp, encoded.elements, row_splits, *std::move(dense_shape), values_dtype, DeviceOf(encoded, row_splits)};
}

// An element in messages: "encoded_ragged_grad[7]".
struct Place {
  int64_t element;
};
void AppendText(std::string& text, const Place& place) {
  text.append("encoded_ragged_grad[");
  raggrad::AppendText(text, place.element);
  text.push_back(']');
}

Result<int64_t> CountPresent(const GradProblem& problem, int64_t i, const TensorView& values) noexcept {
  if (values.device != problem.device) {
    return InvalidArgument(problem.op, "operands are on different devices [encoded_ragged_grad[", i,
                           "]: expected that of the other operands (", problem.device, "), got ", values.device, "]");
  }
  if (values.dtype != problem.dtype) {
    return InvalidArgument(problem.op, "Type mismatch: actual ", MessageName(values.dtype), " vs. expect ",
                           MessageName(problem.dtype), " [encoded_ragged_grad[", i, "]: expected values of dtype ",
                           problem.dtype, ", got ", values.dtype, "]");
  }
  if (!IsReadable(values)) return Unreadable(problem.op, Place{i}, values);
  return *values.shape.NumElements();
}

// The shape of a missing element: [rows] + dense_values_shape[1:].
Result<Shape> ZerosShape(const GradProblem& problem, int64_t i, std::optional<int64_t> rows) noexcept {
  const bool scalar_splits = problem.row_splits.rank() == 0;
  if (scalar_splits && problem.n() == 1) return problem.dense_shape;
  if (scalar_splits) {
    return InvalidArgument(problem.op, "a missing element needs row_splits to tell its size [encoded_ragged_grad[", i,
                           "] is missing; row_splits: expected a vector of at least ", i + 2,
                           " elements, got a scalar]");
  }
  if (!rows) {
    return InvalidArgument(problem.op, "row_splits is too short for a missing element [encoded_ragged_grad[", i,
                           "] is missing; row_splits: expected at least ", i + 2, " elements, got ",
                           problem.row_splits.dim(0), "]");
  }
  if (problem.dense_shape.rank() == 0) {
    return InvalidArgument(problem.op, "a missing element needs dense_values_shape to have a first dimension ",
                           "[encoded_ragged_grad[", i,
                           "] is missing; dense_values_shape: expected at least 1 element, got 0]");
  }
  Shape shape = Shape::WithDim0(*rows, problem.dense_shape.tail());
  if (!shape.valid()) return MakeError(Code::kResourceExhausted, problem.op, ": no memory for a shape");
  return shape;
}

Result<int64_t> CountMissing(const GradProblem& problem, int64_t i, std::optional<int64_t> rows) noexcept {
  const Result<Shape> zeros = ZerosShape(problem, i, rows);
  if (!zeros.ok()) return zeros.status();
  if (const std::optional<int64_t> count = zeros->NumElements()) return *count;
  return InvalidArgument(problem.op, "Shape ", *zeros,
                         " results in overflow when computing number of elements [encoded_ragged_grad[", i,
                         "] is missing; row_splits gives its rows, dense_values_shape its inner shape]");
}

}  // namespace

Status CheckDevice(std::string_view op, Device device, DType values_dtype) noexcept {
  if (device.is_cpu()) return {};
  if (!device.is_cuda() || values_dtype == DType::kString) return NoKernelForDevice(op, device);
  return cuda::FindKernels(op, cuda::BatchedCopy::kSymbol).status();
}

Status CheckVariantShape(std::string_view op, std::string_view argument, const VariantArrayView& encoded) noexcept {
  if (!encoded.shape.valid()) {
    return MakeError(Code::kResourceExhausted, op, ": no memory for the shape of an operand [", argument, "]");
  }
  if (encoded.shape.NumElements() == static_cast<int64_t>(encoded.elements.size())) return {};
  return InvalidArgument(op, "the shape of ", argument, " does not fit its elements [", argument,
                         ": expected as many elements as shape ", encoded.shape, " says, got ", encoded.elements.size(),
                         "]");
}

Status CheckSplitsShape(std::string_view op, std::string_view argument, const TensorView& splits) noexcept {
  constexpr std::string_view kInvalid = "Invalid ragged splits: ";
  if (splits.rank() != 1) {
    return InvalidArgument(op, kInvalid, "ragged splits must be rank 1 but is rank ", splits.rank(), " [", argument,
                           ": expected rank 1, got shape ", splits.shape, "]");
  }
  if (splits.dim(0) == 0) {
    return InvalidArgument(op, kInvalid, "ragged splits must have at least one splits, but is empty [", argument,
                           ": expected at least 1 element, got 0]");
  }
  return {};
}

Result<int64_t> CountValues(const GradProblem& problem, int64_t i, std::optional<int64_t> rows) noexcept {
  const std::optional<RaggedView>& element = problem.elements[static_cast<size_t>(i)];
  return element ? CountPresent(problem, i, element->values) : CountMissing(problem, i, rows);
}

Result<Shape> OutputShape(const GradProblem& problem, std::optional<int64_t> total,
                          std::optional<int64_t> rows) noexcept {
  if (problem.n() == 1) {
    const std::optional<RaggedView>& element = problem.elements.front();
    return element ? Result<Shape>(element->values.shape) : ZerosShape(problem, 0, rows);
  }
  const int64_t wanted = *problem.dense_shape.NumElements();
  if (total == wanted) return problem.dense_shape;
  char got[24] = "more than 2^63 - 1";
  if (total) *std::to_chars(got, got + sizeof(got), *total).ptr = '\0';
  return InvalidArgument(problem.op, "the elements do not fill dense_values_shape ", problem.dense_shape,
                         " [encoded_ragged_grad: expected ", wanted, " values in all, got ", std::string_view(got),
                         "]");
}

}  // namespace ragged_variant

Result<Tensor> RaggedTensorToVariantGradient(const VariantArrayView& encoded_ragged_grad, const TensorView& row_splits,
                                             const TensorView& dense_values_shape, DType values_dtype,
                                             const Context& ctx) noexcept {
  using namespace ragged_variant;
  const Result<GradProblem> problem = Check(encoded_ragged_grad, row_splits, dense_values_shape, values_dtype);
  if (!problem.ok()) return problem.status();
  if (Status s = CheckDevice(kOp, problem->device, values_dtype); !s.ok()) return s;
  return WithOp(kOp, [&] { return ragged_variant::on_cpu::ToVariantGradient(*problem, ctx); });
}

}  // namespace raggrad
