// The interface of the backends. Internal to the family.
#pragma once

#include <cstdint>
#include <span>

#include "raggrad/ops/sparse_slice/sparse_slice.h"

namespace raggrad::sparse_slice {

using ValueTypes = JoinLists<NumberTypes, TypeList<QInt8, QUInt8, QInt32>>;

// A gradient whose operands' shapes and types have been checked; m <= n. Only Check() in grad.cc makes one.
struct GradProblem {
  TensorView backprop_val_grad;          // [m], one of ValueTypes
  const int64_t* input_indices;          // [n, d]
  std::span<const int64_t> input_start;  // [d], in host memory
  const int64_t* output_indices;         // [m, d]
  int64_t n;
  int64_t m;
};

// The error when only `used` of the problem's m gradients found their entry.
Status NotAllPropagated(const GradProblem& problem, int64_t used) noexcept;

using SliceTypes = JoinLists<NumberTypes, TypeList<bool, String>>;

// A checked forward. The checks include the elements of shape, start and size. Only Check() in forward.cc makes one.
struct ForwardProblem {
  const int64_t* indices;                       // [n, d]
  TensorView values;                            // [n], one of SliceTypes
  std::span<const int64_t> shape, start, size;  // [d], d <= 254, in host memory

  int64_t n() const noexcept { return values.dim(0); }
  int64_t d() const noexcept { return static_cast<int64_t>(start.size()); }
  // Column 0 of padding: the first dimension of the output.
  int64_t padding() const noexcept;
};

// One element of output_shape, for a dimension that has passed the checks.
constexpr int64_t OutputDim(int64_t dim, int64_t start, int64_t size) noexcept {
  if (start >= dim) return 0;
  return start < dim - size ? size : dim - start;
}

inline int64_t ForwardProblem::padding() const noexcept {
  return d() == 0 ? 0 : OutputDim(shape[0], start[0], size[0]);
}

// How many indices from `start` on are in the box, in such a dimension: none if its end is beyond 2^63 - 1.
constexpr uint64_t BoxSize(int64_t start, int64_t size) noexcept {
  const bool has_entries = size >= 0 && start <= INT64_MAX - size;
  return has_entries ? static_cast<uint64_t>(size) : 0;
}

namespace on_cpu {
Result<Tensor> Grad(const GradProblem& problem, const Context& ctx) noexcept;
Result<SparseSliceOutput> Forward(const ForwardProblem& problem, const Context& ctx) noexcept;
Result<SparseSlicePaddedOutput> ForwardPadded(const ForwardProblem& problem, int64_t max_kept,
                                              const Context& ctx) noexcept;
}  // namespace on_cpu

namespace on_cuda {
Result<Tensor> Grad(const GradProblem& problem, const Context& ctx) noexcept;
Result<SparseSliceOutput> Forward(const ForwardProblem& problem, const Context& ctx) noexcept;
Result<SparseSlicePaddedOutput> ForwardPadded(const ForwardProblem& problem, int64_t max_kept,
                                              const Context& ctx) noexcept;

// The kernels of this family in libraggrad_cuda.so.
struct Kernels {
  static constexpr char kSymbol[] = "raggrad_cuda_sparse_slice";

  decltype(&Grad) grad;
  decltype(&Forward) forward;
  decltype(&ForwardPadded) forward_padded;
};
}  // namespace on_cuda

}  // namespace raggrad::sparse_slice
