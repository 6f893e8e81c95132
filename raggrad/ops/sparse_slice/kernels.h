// What the checks hand to a backend. Internal to the family.
#pragma once

#include <cstdint>
#include <span>

#include "raggrad/ops/sparse_slice/sparse_slice.h"

namespace raggrad::sparse_slice {

using ValueTypes = JoinLists<NumberTypes, TypeList<QInt8, QUInt8, QInt32>>;

// Operands whose shapes and types have been checked; m <= n. Only Check() in sparse_slice.cc makes one.
struct Problem {
  TensorView backprop_val_grad;          // [m], one of ValueTypes
  const int64_t* input_indices;          // [n, d]
  std::span<const int64_t> input_start;  // [d], in host memory
  const int64_t* output_indices;         // [m, d]
  int64_t n;
  int64_t m;
};

// The error when only `used` of the problem's m gradients found their entry.
Status NotAllPropagated(const Problem& problem, int64_t used) noexcept;

namespace cpu {
Result<Tensor> Grad(const Problem& problem, const Context& ctx) noexcept;
}  // namespace cpu

}  // namespace raggrad::sparse_slice
