// The obvious serial code: what tests and fuzzers compare the kernels with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace raggrad::sparse_slice::reference {

template <class T>
struct GradResult {
  std::vector<T> val_grad;
  int64_t used = 0;  // gradients that found their entry; if not all of them, the operator fails with INTERNAL
};

// n: rows of input_indices. The number of columns is input_start's size.
template <class T>
GradResult<T> Grad(std::span<const T> backprop_val_grad, std::span<const int64_t> input_indices,
                   std::span<const int64_t> input_start, std::span<const int64_t> output_indices, int64_t n) {
  const size_t d = input_start.size();
  GradResult<T> result;
  result.val_grad.resize(static_cast<size_t>(n));
  size_t j = 0;
  for (size_t i = 0; i < static_cast<size_t>(n) && j < backprop_val_grad.size(); ++i) {
    bool match = true;
    for (size_t c = 0; c < d; ++c) {
      const uint64_t moved = static_cast<uint64_t>(output_indices[j * d + c]) + static_cast<uint64_t>(input_start[c]);
      match = match && static_cast<uint64_t>(input_indices[i * d + c]) == moved;
    }
    if (match) result.val_grad[i] = backprop_val_grad[j++];
  }
  result.used = static_cast<int64_t>(j);
  return result;
}

}  // namespace raggrad::sparse_slice::reference
