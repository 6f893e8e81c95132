#include "raggrad/core/error_text.h"
#include "raggrad/core/operands.h"
#include "raggrad/cpu/tensor_text.h"
#include "raggrad/cuda/host_copy.h"
#include "raggrad/ops/ragged_variant/kernels.h"
#include "raggrad/ops/ragged_variant/ragged_variant.h"

namespace raggrad {
namespace ragged_variant {
namespace {

using cpu::MessageName;
using cpu::TensorText;

constexpr std::string_view kOp = "RaggedTensorFromVariant";

Status CheckMinimum(std::string_view attribute, int64_t value, int64_t minimum) noexcept {
  if (value >= minimum) return {};
  return InvalidArgument(kOp, "Value for attr '", attribute, "' of ", value, " must be at least minimum ", minimum,
                         " [", attribute, "]");
}

// The ragged rank that elements must have.
Result<int64_t> InputRaggedRank(int64_t input_ragged_rank, int64_t output_ragged_rank, int64_t dims) noexcept {
  if (input_ragged_rank == -1) {
    input_ragged_rank = output_ragged_rank == 0 ? 0 : output_ragged_rank - dims;
    if (input_ragged_rank < 0) {
      return InvalidArgument(kOp, "Inferred input_ragged_rank (output_ragged_rank - encoded_variant.dims()) must be ",
                             ">= 0, found output_ragged_rank: ", output_ragged_rank, ", encoded_variant.dims(): ", dims,
                             ", inferred input_ragged_rank: ", input_ragged_rank,
                             " [output_ragged_rank: expected at least ", dims, "]");
    }
  }
  const bool dense_stack = output_ragged_rank == 0 && input_ragged_rank == 0;
  if (dense_stack || output_ragged_rank - dims == input_ragged_rank) return input_ragged_rank;
  return InvalidArgument(kOp, "output_ragged_rank must be equal to input_ragged_rank + encoded_ragged.dims(); ",
                         "output_ragged_rank: ", output_ragged_rank, ", input_ragged_rank: ", input_ragged_rank,
                         ", encoded_variant.dims(): ", dims, ". [output_ragged_rank]");
}

// Checks in TensorFlow's order: the first fault decides about the error.
Result<FromVariantProblem> Check(const VariantArrayView& encoded, int64_t input_ragged_rank, int64_t output_ragged_rank,
                                 DType values_dtype, DType splits_dtype, void* stream) noexcept {
  if (Status s = CheckDType(kOp, "values_dtype", values_dtype, RaggedTypes{}); !s.ok()) return s;
  if (Status s = CheckDType(kOp, "splits_dtype", splits_dtype, IndexTypes{}); !s.ok()) return s;
  if (Status s = CheckVariantShape(kOp, "encoded_ragged", encoded); !s.ok()) return s;
  if (Status s = CheckMinimum("output_ragged_rank", output_ragged_rank, 0); !s.ok()) return s;
  if (Status s = CheckMinimum("input_ragged_rank", input_ragged_rank, -1); !s.ok()) return s;
  const Result<int64_t> rank = InputRaggedRank(input_ragged_rank, output_ragged_rank, encoded.shape.rank());
  if (!rank.ok()) return rank.status();
  Device device;
  if (!encoded.elements.empty() && encoded.elements[0]) device = encoded.elements[0]->values.device;
  return FromVariantProblem{kOp,          encoded.shape, encoded.elements, *rank, output_ragged_rank,
                            values_dtype, splits_dtype,  device,           stream};
}

// A tensor of an element in messages: "encoded_ragged[7].values" or "encoded_ragged[7].nested_splits[0]".
struct Place {
  int64_t element;
  int64_t level = -1;
};
void AppendText(std::string& text, const Place& place) {
  text.append("encoded_ragged[");
  raggrad::AppendText(text, place.element);
  text.append(place.level < 0 ? "].values" : "].nested_splits[");
  if (place.level < 0) return;
  raggrad::AppendText(text, place.level);
  text.push_back(']');
}

// Checks that a tensor of an element is on the right device and readable.
Status CheckTensor(Device device, const Place& place, const TensorView& view) noexcept {
  if (view.device != device) {
    return InvalidArgument(kOp, "operands are on different devices [", place, ": expected ",
                           place.level < 0 ? "that of the first element, " : "", device, ", got ", view.device, "]");
  }
  return IsReadable(view) ? Status() : Unreadable(kOp, place, view);
}

Status CheckStoredSplits(const FromVariantProblem& problem, int64_t i, int64_t level,
                         const TensorView& splits) noexcept {
  const Place place{i, level};
  if (splits.dtype != problem.splits_dtype) {
    return InvalidArgument(kOp, "Expected row_splits Tensor dtype: ", MessageName(problem.splits_dtype),
                           ", found: ", MessageName(splits.dtype), " [", place, ": expected dtype ",
                           problem.splits_dtype, ", got ", splits.dtype, "]");
  }
  if (Status s = CheckTensor(Device::Cpu(), place, splits); !s.ok()) return s;
  if (splits.rank() == 1) return {};
  return InvalidArgument(kOp, "Ragged splits must have rank 1; encoded scalar element at index ", i,
                         " has splits Tensor ", TensorText{splits}, " [", place, ": expected rank 1, got shape ",
                         splits.shape, "]");
}

// The error for scalar values. Its message shows the scalar, which is copied to the host first if it is on a GPU.
Status ScalarValues(const FromVariantProblem& problem, int64_t i, const TensorView& values) noexcept {
  Context ctx;
  ctx.stream = problem.stream;
  const bool elsewhere = !problem.device.is_cpu();
  const Result<Tensor> copy = elsewhere ? cuda::CopyToHost(kOp, values, ctx) : Tensor();
  if (!copy.ok()) return copy.status();
  return InvalidArgument(kOp, "Ragged values must have rank >= 1; encoded scalar element at index ", i,
                         " has values Tensor: ", TensorText{elsewhere ? copy->view() : values}, " [", Place{i},
                         ": got a scalar]");
}

}  // namespace

Status CheckElement(const FromVariantProblem& problem, int64_t i) noexcept {
  const std::optional<RaggedView>& element = problem.elements[static_cast<size_t>(i)];
  if (!element) {
    return InvalidArgument(kOp, "Input Variant element at index ", i,
                           " doesn't hold a RaggedTensorVariant: ", "Variant<type:  value: [empty]> [encoded_ragged[",
                           i, "] is missing]");
  }
  const Place place{i};
  const TensorView& values = element->values;
  if (const auto rank = static_cast<int64_t>(element->nested_splits.size()); rank != problem.input_ragged_rank) {
    return InvalidArgument(kOp, "Encoded input RaggedTensorVariant has ragged_rank=", rank,
                           ".  Expected ragged_rank=", problem.input_ragged_rank, ". [encoded_ragged[", i, "]]");
  }
  if (values.dtype != problem.values_dtype) {
    return InvalidArgument(kOp, "Expected values Tensor dtype: ", MessageName(problem.values_dtype),
                           ", found: ", MessageName(values.dtype), " [", place, ": expected dtype ",
                           problem.values_dtype, ", got ", values.dtype, "]");
  }
  if (Status s = CheckTensor(problem.device, place, values); !s.ok()) return s;
  if (values.rank() == 0 && problem.output_ragged_rank != 0) {
    return ScalarValues(problem, i, values);
  }
  for (size_t level = 0; level < element->nested_splits.size(); ++level) {
    const TensorView& splits = element->nested_splits[level];
    if (Status s = CheckStoredSplits(problem, i, static_cast<int64_t>(level), splits); !s.ok()) return s;
  }
  return {};
}

Status CheckSplitsAreNotEmpty(const FromVariantProblem& problem, int64_t i) noexcept {
  const std::span<const TensorView> nested_splits = problem.element(i).nested_splits;
  for (size_t level = 0; level < nested_splits.size(); ++level) {
    if (nested_splits[level].dim(0) > 0) continue;
    return InvalidArgument(kOp, "ragged splits must have at least one splits, but is empty [",
                           Place{i, static_cast<int64_t>(level)}, ": expected at least 1 element, got 0]");
  }
  return {};
}

Status CheckValuesRank(const FromVariantProblem& problem, int64_t i) noexcept {
  const Shape& first = problem.element(0).values.shape;
  const Shape& shape = problem.element(i).values.shape;
  if (problem.output_ragged_rank == 0 || shape.rank() == first.rank()) return {};
  return InvalidArgument(kOp, "Rank of values must match for all components; values shape at index 0: ", first,
                         ", values shape at index ", i, ": ", shape, " [", Place{i}, "]");
}

Status CheckValuesShape(const FromVariantProblem& problem, int64_t i) noexcept {
  const bool dense_stack = problem.output_ragged_rank == 0;
  const auto compared = [&](int64_t element) {
    const Shape& shape = problem.element(element).values.shape;
    return dense_stack ? shape.dims() : shape.tail();
  };
  if (std::ranges::equal(compared(0), compared(i))) return {};
  constexpr std::string_view kHint =
      ".  If you are using tf.map_fn, then you may need to specify an explicit fn_output_signature with appropriate "
      "ragged_rank, and/or convert output tensors to RaggedTensors.";
  return InvalidArgument(kOp, "All flat_values must have compatible shapes.  Shape at index 0: ", Shape(compared(0)),
                         ".  Shape at index ", i, ": ", Shape(compared(i)), dense_stack ? std::string_view() : kHint,
                         " [", Place{i}, "]");
}

}  // namespace ragged_variant

Result<Ragged> RaggedTensorFromVariant(const VariantArrayView& encoded_ragged, int64_t input_ragged_rank,
                                       int64_t output_ragged_rank, DType values_dtype, DType splits_dtype,
                                       const Context& ctx) noexcept {
  using namespace ragged_variant;
  const Result<FromVariantProblem> problem =
      Check(encoded_ragged, input_ragged_rank, output_ragged_rank, values_dtype, splits_dtype, ctx.stream);
  if (!problem.ok()) return problem.status();
  if (Status s = CheckDevice(kOp, problem->device, values_dtype); !s.ok()) return s;
  return WithOp(kOp, [&] { return ragged_variant::on_cpu::FromVariant(*problem, ctx); });
}

}  // namespace raggrad
