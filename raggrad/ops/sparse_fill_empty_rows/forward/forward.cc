// Checks of the forwards that need only shapes and types (and the number of rows, which is always in host memory).
#include "raggrad/core/error_text.h"
#include "raggrad/core/operands.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/sparse_fill_empty_rows/kernels.h"

namespace raggrad {
namespace sparse_fill_empty_rows {
namespace {

struct Operands {
  std::string_view op;
  Operand indices;  // "value_rowids" of a ragged tensor
  Operand values;
  Operand rows;  // "dense_shape", or "nrows" of a ragged tensor
  Operand default_value;
};

Status CheckTypes(const Operands& o) noexcept {
  if (Status s = CheckDType(o.op, o.indices.name, o.indices.view.dtype, TypeList<int64_t>{}); !s.ok()) return s;
  if (Status s = CheckDType(o.op, o.values.name, o.values.view.dtype, FillTypes{}); !s.ok()) return s;
  if (Status s = CheckDType(o.op, o.rows.name, o.rows.view.dtype, TypeList<int64_t>{}); !s.ok()) return s;
  if (o.default_value.view.dtype != o.values.view.dtype) {
    return InvalidArgument(o.op, "default_value has another dtype than values [default_value: expected ",
                           o.values.view.dtype, ", got ", o.default_value.view.dtype, "]");
  }
  if (Status s = CheckOperands(o.op, {o.indices, o.values, o.default_value}); !s.ok()) return s;
  return CheckHostOperand(o.op, o.rows);
}

Status CheckRank(std::string_view op, const Operand& operand, int rank) noexcept {
  constexpr std::string_view kForms[] = {"scalar", "vector", "matrix"};
  if (operand.view.rank() == rank) return {};
  return InvalidArgument(op, operand.name, " must be a ", kForms[rank], ", saw: ", operand.view.shape, " [",
                         operand.name, ": expected rank ", rank, ", got rank ", operand.view.rank(), "]");
}

Status CheckLength(std::string_view op, const Operand& operand, std::string_view dimension, int64_t expected) noexcept {
  if (operand.view.dim(0) == expected) return {};
  return InvalidArgument(op, "The length of `", operand.name, "` (", operand.view.dim(0), ") must match the ",
                         dimension, " (", expected, "). [", operand.name, ": expected ", expected, " elements, got ",
                         operand.view.dim(0), "]");
}

// Checks that the two forms share, after those of their shapes.
Result<ForwardProblem> CheckRows(const Operands& o, bool ragged, int64_t d) noexcept {
  const int64_t rows = *o.rows.view.As<int64_t>();
  const int64_t n = o.values.view.dim(0);
  if (rows < 0) {
    return InvalidArgument(o.op, "Expected shape dimensions to be non-negative, got ", rows, " [", o.rows.name,
                           ragged ? "" : "[0]", ": expected at least 0, got ", rows, "]");
  }
  if (rows == 0 && n > 0) {
    return InvalidArgument(o.op, "Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = ", n, " [",
                           o.rows.name, ragged ? "" : "[0]", ": expected at least 1 for ", n, " entries, got 0]");
  }
  return ForwardProblem{o.op, ragged, o.indices.view.As<int64_t>(), o.values.view, o.default_value.view.data, d, rows};
}

// Checks in TensorFlow's order: the first fault decides the error.
Result<ForwardProblem> CheckSparse(const Operands& o) noexcept {
  if (Status s = CheckTypes(o); !s.ok()) return s;
  if (Status s = CheckRank(o.op, o.rows, 1); !s.ok()) return s;
  if (Status s = CheckRank(o.op, o.indices, 2); !s.ok()) return s;
  if (Status s = CheckRank(o.op, o.values, 1); !s.ok()) return s;
  const int64_t d = o.indices.view.dim(1);
  if (Status s = CheckLength(o.op, o.values, "first dimension of `indices`", o.indices.view.dim(0)); !s.ok()) return s;
  if (Status s = CheckLength(o.op, o.rows, "second dimension of `indices`", d); !s.ok()) return s;
  if (Status s = CheckRank(o.op, o.default_value, 0); !s.ok()) return s;
  if (d == 0) {
    return InvalidArgument(o.op, "Dense shape cannot be empty. [dense_shape: expected at least 1 element, got 0]");
  }
  return CheckRows(o, false, d);
}

Result<ForwardProblem> CheckRagged(const Operands& o) noexcept {
  if (Status s = CheckTypes(o); !s.ok()) return s;
  if (Status s = CheckRank(o.op, o.rows, 0); !s.ok()) return s;
  if (Status s = CheckRank(o.op, o.indices, 1); !s.ok()) return s;
  if (Status s = CheckRank(o.op, o.values, 1); !s.ok()) return s;
  if (Status s = CheckLength(o.op, o.values, "first dimension of `value_rowids`", o.indices.view.dim(0)); !s.ok()) {
    return s;
  }
  if (Status s = CheckRank(o.op, o.default_value, 0); !s.ok()) return s;
  return CheckRows(o, true, 1);
}

Result<SparseFillEmptyRowsOutput> Forward(const Result<ForwardProblem>& problem, const Context& ctx) noexcept {
  if (!problem.ok()) return problem.status();
  return cuda::RunOnDevice<on_cuda::Kernels>(
      problem->op, problem->values.device, [&] { return on_cpu::Forward(*problem, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.forward(*problem, ctx); });
}

Result<SparseFillEmptyRowsPaddedOutput> ForwardPadded(const Result<ForwardProblem>& problem, int64_t max_full,
                                                      const Context& ctx) noexcept {
  if (!problem.ok()) return problem.status();
  if (Status s = CheckBound(problem->op, "max_full", max_full); !s.ok()) return s;
  return cuda::RunOnDevice<on_cuda::Kernels>(
      problem->op, problem->values.device, [&] { return on_cpu::ForwardPadded(*problem, max_full, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.forward_padded(*problem, max_full, ctx); });
}

Result<ForwardProblem> CheckSparse(const TensorView& indices, const TensorView& values, const TensorView& dense_shape,
                                   const TensorView& default_value) noexcept {
  return CheckSparse({"SparseFillEmptyRows",
                      {"indices", indices},
                      {"values", values},
                      {"dense_shape", dense_shape},
                      {"default_value", default_value}});
}

Result<ForwardProblem> CheckRagged(const TensorView& value_rowids, const TensorView& values, const TensorView& nrows,
                                   const TensorView& default_value) noexcept {
  return CheckRagged({"RaggedFillEmptyRows",
                      {"value_rowids", value_rowids},
                      {"values", values},
                      {"nrows", nrows},
                      {"default_value", default_value}});
}

}  // namespace

Status NoSuchRow(std::string_view op, bool ragged, int64_t rows, int64_t position, int64_t row) noexcept {
  return InvalidArgument(op, "indices(", position, ", 0) is invalid: ", row, " >= ", rows, " [",
                         ragged ? "value_rowids[" : "indices[", position, ragged ? "]" : ",0]",
                         ": expected a row in [0, ", rows, "), got ", row, "]");
}

}  // namespace sparse_fill_empty_rows

Result<SparseFillEmptyRowsOutput> SparseFillEmptyRows(const TensorView& indices, const TensorView& values,
                                                      const TensorView& dense_shape, const TensorView& default_value,
                                                      const Context& ctx) noexcept {
  using namespace sparse_fill_empty_rows;
  return Forward(CheckSparse(indices, values, dense_shape, default_value), ctx);
}

Result<SparseFillEmptyRowsPaddedOutput> SparseFillEmptyRowsPadded(const TensorView& indices, const TensorView& values,
                                                                  const TensorView& dense_shape,
                                                                  const TensorView& default_value, int64_t max_full,
                                                                  const Context& ctx) noexcept {
  using namespace sparse_fill_empty_rows;
  return ForwardPadded(CheckSparse(indices, values, dense_shape, default_value), max_full, ctx);
}

Result<RaggedFillEmptyRowsOutput> RaggedFillEmptyRows(const TensorView& value_rowids, const TensorView& values,
                                                      const TensorView& nrows, const TensorView& default_value,
                                                      const Context& ctx) noexcept {
  using namespace sparse_fill_empty_rows;
  auto result = Forward(CheckRagged(value_rowids, values, nrows, default_value), ctx);
  if (!result.ok()) return result.status();
  return RaggedFillEmptyRowsOutput{std::move(result->output_indices), std::move(result->output_values),
                                   std::move(result->empty_row_indicator), std::move(result->reverse_index_map)};
}

Result<RaggedFillEmptyRowsPaddedOutput> RaggedFillEmptyRowsPadded(const TensorView& value_rowids,
                                                                  const TensorView& values, const TensorView& nrows,
                                                                  const TensorView& default_value, int64_t max_full,
                                                                  const Context& ctx) noexcept {
  using namespace sparse_fill_empty_rows;
  auto result = ForwardPadded(CheckRagged(value_rowids, values, nrows, default_value), max_full, ctx);
  if (!result.ok()) return result.status();
  return RaggedFillEmptyRowsPaddedOutput{std::move(result->output_indices), std::move(result->output_values),
                                         std::move(result->empty_row_indicator), std::move(result->reverse_index_map),
                                         std::move(result->report)};
}

}  // namespace raggrad
