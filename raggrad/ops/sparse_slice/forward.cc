// Checks of the forward: shapes, types, and the elements of shape, start and size, which are always in host memory.
#include <algorithm>
#include <string>

#include "raggrad/core/error_text.h"
#include "raggrad/core/operands.h"
#include "raggrad/core/padded_report.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/sparse_slice/kernels.h"

namespace raggrad {
namespace sparse_slice {
namespace {

constexpr std::string_view kOp = "SparseSlice";

struct Operands {
  Operand indices;
  Operand values;
  Operand shape;
  Operand start;
  Operand size;
};

Status CheckTypes(const Operands& o) noexcept {
  if (Status s = CheckDType(kOp, o.indices.name, o.indices.view.dtype, TypeList<int64_t>{}); !s.ok()) return s;
  if (Status s = CheckDType(kOp, o.values.name, o.values.view.dtype, SliceTypes{}); !s.ok()) return s;
  for (const Operand& operand : {o.shape, o.start, o.size}) {
    if (Status s = CheckDType(kOp, operand.name, operand.view.dtype, TypeList<int64_t>{}); !s.ok()) return s;
  }
  if (Status s = CheckOperands(kOp, {o.indices, o.values}); !s.ok()) return s;
  for (const Operand& operand : {o.shape, o.start, o.size}) {
    if (Status s = CheckHostOperand(kOp, operand); !s.ok()) return s;
  }
  return {};
}

Status CheckSparseTensor(const Operands& o) noexcept {
  const auto check_rank = [](const Operand& operand, int rank) -> Status {
    if (operand.view.rank() == rank) return {};
    return InvalidArgument(kOp, "Sparse ", operand.name, " must be rank ", rank, " but is rank ", operand.view.rank(),
                           " [", operand.name, ": expected rank ", rank, ", got shape ", operand.view.shape, "]");
  };
  if (Status s = check_rank(o.indices, 2); !s.ok()) return s;
  if (Status s = check_rank(o.values, 1); !s.ok()) return s;
  if (Status s = check_rank(o.shape, 1); !s.ok()) return s;
  const int64_t n = o.indices.view.dim(0);
  const int64_t d = o.indices.view.dim(1);
  if (o.values.view.dim(0) != n) {
    return InvalidArgument(kOp, "Number of elements in indices (", n, ") and values (", o.values.view.dim(0),
                           ") do not match [values: expected ", n, " elements, got ", o.values.view.dim(0), "]");
  }
  if (o.shape.view.dim(0) != d) {
    return InvalidArgument(kOp, "Index rank (", d, ") and shape rank (", o.shape.view.dim(0),
                           ") do not match [shape: expected ", d, " elements, got ", o.shape.view.dim(0), "]");
  }
  return {};
}

Status CheckBoxShapes(const Operands& o) noexcept {
  for (const Operand& operand : {o.start, o.size}) {
    if (operand.view.rank() == 1) continue;
    return InvalidArgument(kOp, "Input ", operand.name, " should be a vector but received shape ", operand.view.shape,
                           " [", operand.name, ": expected rank 1, got rank ", operand.view.rank(), "]");
  }
  const int64_t d = o.shape.view.dim(0);
  for (const Operand& operand : {o.start, o.size}) {
    if (operand.view.dim(0) == d) continue;
    return InvalidArgument(kOp, "Expected ", operand.name, " to be a vector of length ", d, " but got length ",
                           operand.view.dim(0), " [", operand.name, ": expected ", d, " elements, got ",
                           operand.view.dim(0), "]");
  }
  return {};
}

std::span<const int64_t> ElementsOf(const Operand& operand) noexcept {
  return {operand.view.As<int64_t>(), static_cast<size_t>(operand.view.dim(0))};
}

// The product as TensorFlow reports it when it does not fit: its 64 bits, or -1 if it has more.
int64_t ReportedProduct(int64_t a, int64_t b) noexcept {
  uint64_t product;
  const bool wraps = __builtin_mul_overflow(static_cast<uint64_t>(a), static_cast<uint64_t>(b), &product);
  return wraps ? -1 : static_cast<int64_t>(product);
}

// Checks that a tensor can have these dimensions. TensorFlow has other texts and another order once one of them is
// large.
Status CheckDims(std::span<const int64_t> shape) noexcept {
  constexpr int64_t kLargestSmall = 55108;  // the fourth root of 2^63
  if (std::ranges::all_of(shape, [](int64_t dim) { return dim <= kLargestSmall; })) {
    const auto negative = std::ranges::find_if(shape, [](int64_t dim) { return dim < 0; });
    if (negative != shape.end()) {
      return InvalidArgument(kOp, "Expected shape dimensions to be non-negative, got ", *negative, " [shape[",
                             negative - shape.begin(), "]: expected at least 0, got ", *negative, "]");
    }
  }
  int64_t product = 1;
  for (size_t c = 0; c < shape.size(); ++c) {
    if (shape[c] < 0) {
      return InvalidArgument(kOp, "Expected a non-negative size, got ", shape[c], " [shape[", c,
                             "]: expected at least 0, got ", shape[c], "]");
    }
    if (c == Shape::kMaxRank) {
      return InvalidArgument(kOp, "Too many dimensions in tensor [shape: expected at most ", Shape::kMaxRank,
                             " elements, got ", shape.size(), "]");
    }
    const int64_t before = product;
    if (__builtin_mul_overflow(before, shape[c], &product)) {
      return InvalidArgument(kOp, "Encountered overflow when multiplying ", before, " with ", shape[c],
                             ", result: ", ReportedProduct(before, shape[c]), " [shape[", c,
                             "]: expected dimensions whose product is below 2^63, got ", shape[c], "]");
    }
  }
  return {};
}

// The output's dimensions up to the c-th, and the input's behind it.
struct PartialOutputShape {
  const ForwardProblem& problem;
  size_t c;

  int64_t operator[](size_t k) const noexcept {
    return k <= c ? OutputDim(problem.shape[k], problem.start[k], problem.size[k]) : problem.shape[k];
  }
};
void AppendText(std::string& text, const PartialOutputShape& shape) {
  for (size_t k = 0; k < shape.problem.shape.size(); ++k) {
    text.push_back(k == 0 ? '[' : ',');
    raggrad::AppendText(text, shape[k]);
  }
  text.push_back(']');
}

Status CheckNumElements(const PartialOutputShape& shape) noexcept {
  int64_t product = 1;
  for (size_t k = 0; k < shape.problem.shape.size(); ++k) {
    const int64_t before = product;
    if (!__builtin_mul_overflow(before, shape[k], &product)) continue;
    // TensorFlow gives one of these two texts; which one depends on how it has stored the shape.
    return InvalidArgument(kOp, "Encountered overflow when multiplying ", before, " with ", shape[k],
                           ", result: ", ReportedProduct(before, shape[k]), ": Shape ", shape,
                           " results in overflow when computing number of elements [", "start[", shape.c,
                           "]: expected an output_shape of less than 2^63 elements, got ", shape.problem.start[shape.c],
                           "]");
  }
  return {};
}

Status CheckBox(const ForwardProblem& problem) noexcept {
  for (size_t c = 0; c < problem.shape.size(); ++c) {
    const int64_t dim = problem.shape[c];
    const int64_t start = problem.start[c];
    const int64_t size = problem.size[c];
    int64_t bound = 0;
    if (size < 0 && (__builtin_sub_overflow(dim, size, &bound) || start < bound)) {
      return InvalidArgument(kOp, "Expected a non-negative size, got ", size, " [size[", c,
                             "]: expected at least 0, got ", size, "]");
    }
    if (start < dim && __builtin_add_overflow(start, size, &bound)) {  // TensorFlow loses all entries
      return InvalidArgument(kOp, "start + size must be below 2^63 [size[", c, "]: expected less than 2^63 - ", start,
                             ", got ", size, "]");
    }
    if (Status s = CheckNumElements({problem, c}); !s.ok()) return s;
  }
  return {};
}

// Checks in TensorFlow's order: the first fault decides the error.
Result<ForwardProblem> Check(const Operands& o) noexcept {
  if (Status s = CheckTypes(o); !s.ok()) return s;
  if (Status s = CheckSparseTensor(o); !s.ok()) return s;
  if (Status s = CheckBoxShapes(o); !s.ok()) return s;
  if (Status s = CheckDims(ElementsOf(o.shape)); !s.ok()) return s;
  const ForwardProblem problem{o.indices.view.As<int64_t>(), o.values.view, ElementsOf(o.shape), ElementsOf(o.start),
                               ElementsOf(o.size)};
  if (Status s = CheckBox(problem); !s.ok()) return s;
  return problem;
}

}  // namespace
}  // namespace sparse_slice

Result<SparseSliceOutput> SparseSlice(const TensorView& indices, const TensorView& values, const TensorView& shape,
                                      const TensorView& start, const TensorView& size, const Context& ctx) noexcept {
  using namespace sparse_slice;
  const Result<ForwardProblem> problem =
      Check({{"indices", indices}, {"values", values}, {"shape", shape}, {"start", start}, {"size", size}});
  if (!problem.ok()) return problem.status();
  return cuda::RunOnDevice<sparse_slice::on_cuda::Kernels>(
      kOp, values.device, [&] { return sparse_slice::on_cpu::Forward(*problem, ctx); },
      [&](const sparse_slice::on_cuda::Kernels& kernels) { return kernels.forward(*problem, ctx); });
}

Result<SparseSlicePaddedOutput> SparseSlicePadded(const TensorView& indices, const TensorView& values,
                                                  const TensorView& shape, const TensorView& start,
                                                  const TensorView& size, int64_t max_kept,
                                                  const Context& ctx) noexcept {
  using namespace sparse_slice;
  const Result<ForwardProblem> problem =
      Check({{"indices", indices}, {"values", values}, {"shape", shape}, {"start", start}, {"size", size}});
  if (!problem.ok()) return problem.status();
  if (Status s = CheckBound(kOp, "max_kept", max_kept); !s.ok()) return s;
  return cuda::RunOnDevice<sparse_slice::on_cuda::Kernels>(
      kOp, values.device, [&] { return sparse_slice::on_cpu::ForwardPadded(*problem, max_kept, ctx); },
      [&](const sparse_slice::on_cuda::Kernels& kernels) { return kernels.forward_padded(*problem, max_kept, ctx); });
}

}  // namespace raggrad
