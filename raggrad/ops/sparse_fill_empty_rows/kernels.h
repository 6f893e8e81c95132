// What the checks hand to a backend. Internal to the family.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"

namespace raggrad::sparse_fill_empty_rows {

// Operands whose shapes and types have been checked; the numbers in the map have not. Only Check() in
// sparse_fill_empty_rows.cc makes one.
struct Problem {
  std::string_view op;                         // for messages
  std::span<const int64_t> reverse_index_map;  // [n]
  TensorView grad_values;                      // [n_full], one of NumberTypes

  int64_t n() const noexcept { return static_cast<int64_t>(reverse_index_map.size()); }
  int64_t n_full() const noexcept { return grad_values.dim(0); }
};

// The error when reverse_index_map[position] is `place`, which is none.
Status NoSuchPlace(const Problem& problem, int64_t position, int64_t place) noexcept;

using FillTypes = JoinLists<NumberTypes, TypeList<bool, String>>;

// The same for the forwards; nothing is known of the numbers in `indices`. Only Check() in forward.cc makes one.
struct ForwardProblem {
  std::string_view op;
  bool ragged;             // the form of output 0 and of messages
  const int64_t* indices;  // [n, d]
  TensorView values;       // [n], one of FillTypes
  const void* default_value;
  int64_t d;     // at least 1
  int64_t rows;  // at least 0; more if there are entries

  int64_t n() const noexcept { return values.dim(0); }
  // Without rows TensorFlow gives a matrix for a ragged tensor, too.
  Shape OutputIndicesShape(int64_t n_full) const noexcept {
    return ragged && rows > 0 ? Shape{n_full} : Shape{n_full, d};
  }
};

// The error when entry `position` is in `row`, which is none.
Status NoSuchRow(const ForwardProblem& problem, int64_t position, int64_t row) noexcept;

namespace on_cpu {
Result<FillEmptyRowsGradOutput> Grad(const Problem& problem, const Context& ctx) noexcept;
Result<SparseFillEmptyRowsOutput> Forward(const ForwardProblem& problem, const Context& ctx) noexcept;
}  // namespace on_cpu

namespace on_cuda {
Result<FillEmptyRowsGradOutput> Grad(const Problem& problem, const Context& ctx) noexcept;
Result<SparseFillEmptyRowsOutput> Forward(const ForwardProblem& problem, const Context& ctx) noexcept;

// What libraggrad_cuda.so has of this family.
struct Kernels {
  static constexpr char kSymbol[] = "raggrad_cuda_sparse_fill_empty_rows";

  decltype(&Grad) grad;
  decltype(&Forward) forward;
};
}  // namespace on_cuda

}  // namespace raggrad::sparse_fill_empty_rows
