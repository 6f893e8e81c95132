// The interface of the backends. Internal to the family.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "raggrad/core/padded_report.h"
#include "raggrad/ops/sparse_fill_empty_rows/sparse_fill_empty_rows.h"

namespace raggrad::sparse_fill_empty_rows {

// A gradient whose operands' shapes and types have been checked, but not the places in the map. Only Check() in grad.cc
// makes one.
struct GradProblem {
  std::string_view op;                         // for messages
  std::span<const int64_t> reverse_index_map;  // [n]
  TensorView grad_values;                      // [n_full], one of NumberTypes

  int64_t n() const noexcept { return static_cast<int64_t>(reverse_index_map.size()); }
  int64_t n_full() const noexcept { return grad_values.dim(0); }
};

// The error when reverse_index_map[position] is `place`, which does not exist.
Status NoSuchPlace(const GradProblem& problem, int64_t position, int64_t place) noexcept;

using FillTypes = JoinLists<NumberTypes, TypeList<bool, String>>;

// A forward whose operands' shapes and types have been checked, but not the rows in `indices`. Only CheckSparse() and
// CheckRagged() in forward.cc make one.
struct ForwardProblem {
  std::string_view op;
  bool ragged;             // decides the shape of output 0 and the form of messages
  const int64_t* indices;  // [n, d]
  TensorView values;       // [n], one of FillTypes
  const void* default_value;
  int64_t d;     // at least 1
  int64_t rows;  // at least 0; at least 1 if there are entries

  int64_t n() const noexcept { return values.dim(0); }
  // Without rows TensorFlow returns a matrix for a ragged tensor, too.
  Shape OutputIndicesShape(int64_t n_full) const noexcept {
    return ragged && rows > 0 ? Shape{n_full} : Shape{n_full, d};
  }
  // Padding has the shape that nearly all results have.
  Shape PaddedIndicesShape(int64_t max_full) const noexcept { return ragged ? Shape{max_full} : Shape{max_full, d}; }
  PaddedForm padded_form() const noexcept {
    return ragged ? PaddedForm::kRaggedFillEmptyRows : PaddedForm::kSparseFillEmptyRows;
  }
};

// The error when entry `position` is in `row`, which does not exist.
Status NoSuchRow(std::string_view op, bool ragged, int64_t rows, int64_t position, int64_t row) noexcept;
inline Status NoSuchRow(const ForwardProblem& problem, int64_t position, int64_t row) noexcept {
  return NoSuchRow(problem.op, problem.ragged, problem.rows, position, row);
}

namespace on_cpu {
Result<FillEmptyRowsGradOutput> Grad(const GradProblem& problem, const Context& ctx) noexcept;
Result<SparseFillEmptyRowsOutput> Forward(const ForwardProblem& problem, const Context& ctx) noexcept;
Result<SparseFillEmptyRowsPaddedOutput> ForwardPadded(const ForwardProblem& problem, int64_t max_full,
                                                      const Context& ctx) noexcept;
}  // namespace on_cpu

namespace on_cuda {
Result<FillEmptyRowsGradOutput> Grad(const GradProblem& problem, const Context& ctx) noexcept;
Result<SparseFillEmptyRowsOutput> Forward(const ForwardProblem& problem, const Context& ctx) noexcept;
Result<SparseFillEmptyRowsPaddedOutput> ForwardPadded(const ForwardProblem& problem, int64_t max_full,
                                                      const Context& ctx) noexcept;

// The kernels of this family in libraggrad_cuda.so.
struct Kernels {
  static constexpr char kSymbol[] = "raggrad_cuda_sparse_fill_empty_rows";

  decltype(&Grad) grad;
  decltype(&Forward) forward;
  decltype(&ForwardPadded) forward_padded;
};
}  // namespace on_cuda

}  // namespace raggrad::sparse_fill_empty_rows
