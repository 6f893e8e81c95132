#include "raggrad/ops/sparse_segment/indexed_slices.h"

#include "raggrad/core/operands.h"
#include "raggrad/cpu/float_environment.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/plan/plan_state.h"
#include "raggrad/ops/sparse_segment/update/optimizer_job.h"
#include "raggrad/ops/sparse_segment/weights/weights.h"

namespace raggrad {
namespace {

using sparse_segment::CheckSameSize;
using sparse_segment::CheckTableRows;
using sparse_segment::CheckVector;
using sparse_segment::CheckWeights;
using sparse_segment::CheckWithPlan;
using sparse_segment::GradProblem;
using sparse_segment::UsingPlan;
using sparse_segment::WeightsOf;

Status CheckRank(std::string_view op, std::string_view name, const TensorView& view) noexcept {
  if (view.rank() > 0) return {};
  return InvalidArgument(op, name, " must have rows [", name, ": expected at least rank 1, got a scalar]");
}

Status CheckValues(std::string_view op, std::string_view name, const TensorView& values,
                   const TensorView& indices) noexcept {
  if (Status s = CheckDType(op, name, values.dtype, FloatTypes{}); !s.ok()) return s;
  if (Status s = CheckDType(op, "indices", indices.dtype, IndexTypes{}); !s.ok()) return s;
  if (Status s = CheckOperands(op, {{name, values}, {"indices", indices}}); !s.ok()) return s;
  if (Status s = CheckRank(op, name, values); !s.ok()) return s;
  return CheckVector(op, "indices", indices);
}

// Checks that the dense array's number of elements fits 63 bits.
Status CheckDenseSize(std::string_view op, int64_t table_rows, const TensorView& values) noexcept {
  const Shape dense = Shape::WithDim0(table_rows, values.shape.tail());
  if (!dense.valid()) return MakeError(Code::kResourceExhausted, op, ": no memory for a shape");
  if (dense.NumElements()) return {};
  return InvalidArgument(op, "Shape ", dense, " results in overflow when computing number of elements [table_rows]");
}

// Slices are the gradient of a sum in which every id is a segment of its own.
Result<GradProblem> CheckSlices(std::string_view op, const IndexedSlicesView& slices) noexcept {
  const auto& [values, indices, table_rows, coalesced] = slices;
  if (Status s = CheckValues(op, "values", values, indices); !s.ok()) return s;
  if (Status s = CheckTableRows(op, "table_rows", table_rows); !s.ok()) return s;
  if (values.dim(0) != indices.dim(0)) {
    return InvalidArgument(op, "values and indices should have same size [values: expected ", indices.dim(0),
                           " rows as indices has elements, got shape ", values.shape, "]");
  }
  if (Status s = CheckDenseSize(op, table_rows, values); !s.ok()) return s;
  return GradProblem{.ids = {op, indices, /*segment_ids=*/{}, table_rows, values.dim(0)},
                     .combiner = SegmentCombiner::kSum,
                     .grad = values,
                     .coalesced = coalesced};
}

Result<GradProblem> CheckGrad(std::string_view op, const SegmentPooling& pooling, const TensorView& grad,
                              const TensorView& indices, const TensorView& segment_ids, int64_t table_rows) noexcept {
  if (Status s = CheckValues(op, "grad", grad, indices); !s.ok()) return s;
  if (Status s = CheckDType(op, "segment_ids", segment_ids.dtype, IndexTypes{}); !s.ok()) return s;
  if (Status s = CheckOperands(op, {{"grad", grad}, {"segment_ids", segment_ids}}); !s.ok()) return s;
  if (Status s = CheckVector(op, "segment_ids", segment_ids); !s.ok()) return s;
  if (Status s = CheckSameSize(op, indices, segment_ids); !s.ok()) return s;
  const SegmentWeights* const weights = WeightsOf(pooling);
  if (Status s = CheckWeights(op, weights, indices.dim(0), {"grad", grad}); !s.ok()) return s;
  return GradProblem{.ids = {op, indices, segment_ids, table_rows, grad.dim(0)},
                     .combiner = pooling.combiner,
                     .grad = grad,
                     .weights = weights};
}

struct Bytes {
  std::string_view name;
  const char* begin;
  const char* end;
};

Bytes BytesOf(std::string_view name, const TensorView& view) noexcept {
  const auto* data = static_cast<const char*>(view.data);
  const size_t size = static_cast<size_t>(view.shape.NumElements().value_or(0)) * DTypeSize(view.dtype);
  return {name, data, size > 0 ? data + size : data};
}

Status CheckNoOverlap(std::string_view op, const Bytes& a, const Bytes& b) noexcept {
  if (a.begin >= b.end || b.begin >= a.end) return {};
  return InvalidArgument(op, "arrays overlap [", a.name, ": expected memory of its own, got memory of ", b.name, "]");
}

// The arrays that an update changes: the table, then the states of its rule.
struct Changed {
  Operand operands[3];
  int count;
};

Changed ChangedBy(const RowUpdate& update, const TensorView (&views)[3]) noexcept {
  if (std::holds_alternative<Adagrad>(update) || std::holds_alternative<RowwiseAdagrad>(update))
    return {{{"table", views[0]}, {"accumulator", views[1]}, {"", views[2]}}, 2};
  if (std::holds_alternative<Adam>(update)) return {{{"table", views[0]}, {"m", views[1]}, {"v", views[2]}}, 3};
  return {{{"table", views[0]}, {"", views[1]}, {"", views[2]}}, 1};
}

Status CheckHyperparameters(std::string_view op, const RowUpdate& update) noexcept {
  const auto* adam = std::get_if<Adam>(&update);
  if (adam == nullptr) return {};
  if (adam->step < 1) {
    return InvalidArgument(op, "steps are counted from 1 [step: expected at least 1, got ", adam->step, "]");
  }
  // A comparison with NaN raises a floating-point exception, which the caller may have made a trap.
  const auto valid = [](double beta) { return cpu::InFloatEnvironment([&] { return beta >= 0.0 && beta < 1.0; }); };
  if (!valid(adam->beta1)) return InvalidArgument(op, "beta1 is out of range [beta1: expected 0 <= beta1 < 1]");
  if (!valid(adam->beta2)) return InvalidArgument(op, "beta2 is out of range [beta2: expected 0 <= beta2 < 1]");
  return {};
}

Status CheckRate(const GradProblem& p, const RowUpdate& update) noexcept {
  const TensorView& rate = sparse_segment::RateInMemory(update);
  if (rate.dtype == DType::kInvalid && rate.data == nullptr) return {};
  if (Status s = CheckDType(p.ids.op, "rate", rate.dtype, TypeList<double>{}); !s.ok()) return s;
  if (Status s = CheckOperands(p.ids.op, {{"grad", p.grad}, {"rate", rate}}); !s.ok()) return s;
  if (rate.shape.NumElements() == 1) return {};
  return InvalidArgument(p.ids.op, "a rate is one number [rate: expected 1 element, got shape ", rate.shape, "]");
}

// Checks types and shapes of the table and the states, and that none overlaps with another or with an operand.
Status CheckUpdate(const GradProblem& p, const RowUpdate& update, const MutableTensorView& table) noexcept {
  if (Status s = CheckRate(p, update); !s.ok()) return s;
  TensorView views[3] = {table.view(), {}, {}};
  if (const auto* adagrad = std::get_if<Adagrad>(&update)) {
    views[1] = adagrad->accumulator.view();
  } else if (const auto* adam = std::get_if<Adam>(&update)) {
    views[1] = adam->m.view();
    views[2] = adam->v.view();
  } else if (const auto* rowwise = std::get_if<RowwiseAdagrad>(&update)) {
    views[1] = rowwise->accumulator.view();
  }
  const bool wide = p.grad.dtype == DType::kFloat64;
  const Changed changed = ChangedBy(update, views);
  const Bytes read[] = {BytesOf("grad", p.grad), BytesOf("indices", p.ids.indices),
                        BytesOf("segment_ids", p.ids.segment_ids),
                        BytesOf("weights", p.weights != nullptr ? p.weights->values : TensorView()),
                        BytesOf("rate", sparse_segment::RateInMemory(update))};
  for (int i = 0; i < changed.count; ++i) {
    const auto& [name, view] = changed.operands[i];
    Status type = wide     ? CheckDType(p.ids.op, name, view.dtype, TypeList<double>{})
                  : i == 0 ? CheckDType(p.ids.op, name, view.dtype, TypeList<Half, BFloat16, float>{})
                           : CheckDType(p.ids.op, name, view.dtype, TypeList<float>{});
    if (!type.ok()) return type;
    if (Status s = CheckOperands(p.ids.op, {{"grad", p.grad}, {name, view}}); !s.ok()) return s;
    const bool one_per_row = i > 0 && std::holds_alternative<RowwiseAdagrad>(update);
    const Shape expected =
        one_per_row ? Shape{p.ids.table_rows} : Shape::WithDim0(p.ids.table_rows, p.grad.shape.tail());
    if (!expected.valid()) return MakeError(Code::kResourceExhausted, p.ids.op, ": no memory for a shape");
    if (view.shape != expected) {
      return InvalidArgument(p.ids.op, "an array of the update has the wrong shape [", name, ": expected ", expected,
                             ", got ", view.shape, "]");
    }
    const Bytes bytes = BytesOf(name, view);
    for (const Bytes& other : read) {
      if (Status s = CheckNoOverlap(p.ids.op, bytes, other); !s.ok()) return s;
    }
    for (int k = 0; k < i; ++k) {
      const Bytes other = BytesOf(changed.operands[k].name, changed.operands[k].view);
      if (Status s = CheckNoOverlap(p.ids.op, bytes, other); !s.ok()) return s;
    }
  }
  return CheckHyperparameters(p.ids.op, update);
}

Status Apply(const Result<GradProblem>& problem, const RowUpdate& update, const MutableTensorView& table,
             const Context& ctx) noexcept {
  if (!problem.ok()) return problem.status();
  if (Status s = CheckUpdate(*problem, update, table); !s.ok()) return s;
  return sparse_segment::GradApply(*problem, {update, table}, ctx);
}

// table_rows of a table that has not been checked yet.
Result<int64_t> TableRowsOf(std::string_view op, const MutableTensorView& table) noexcept {
  if (Status s = CheckRank(op, "table", table.view()); !s.ok()) return s;
  if (Status s = CheckTableRows(op, "table", table.shape[0]); !s.ok()) return s;
  return table.shape[0];
}

constexpr std::string_view ApplyName(SegmentCombiner combiner) noexcept {
  return sparse_segment::ByCombiner(combiner, "SparseSegmentSumGradApply", "SparseSegmentMeanGradApply",
                                    "SparseSegmentSqrtNGradApply");
}

}  // namespace

Result<IndexedSlices> SparseSegmentGradSlices(const SegmentPooling& pooling, const TensorView& grad,
                                              const TensorView& indices, const TensorView& segment_ids,
                                              int64_t table_rows, const Context& ctx) noexcept {
  constexpr std::string_view op = "SparseSegmentGradSlices";
  const Result<GradProblem> problem = CheckGrad(op, pooling, grad, indices, segment_ids, table_rows);
  if (!problem.ok()) return problem.status();
  if (Status s = CheckTableRows(op, "table_rows", table_rows); !s.ok()) return s;
  if (Status s = CheckDenseSize(op, table_rows, grad); !s.ok()) return s;
  Result<SparseSegmentGradV2Output> out = sparse_segment::GradV2(*problem, ctx);
  if (!out.ok()) return out.status();
  return IndexedSlices{std::move(out->output), std::move(out->sorted_unique_indices), table_rows};
}

Result<Tensor> ToDense(const IndexedSlicesView& slices, const Context& ctx) noexcept {
  const Result<GradProblem> problem = CheckSlices("ToDense", slices);
  if (!problem.ok()) return problem.status();
  return sparse_segment::Grad(*problem, ctx);
}

Result<IndexedSlices> Coalesce(const IndexedSlicesView& slices, const Context& ctx) noexcept {
  const Result<GradProblem> problem = CheckSlices("Coalesce", slices);
  if (!problem.ok()) return problem.status();
  Result<SparseSegmentGradV2Output> rows = sparse_segment::GradV2(*problem, ctx);
  if (!rows.ok()) return rows.status();
  return IndexedSlices{std::move(rows->output), std::move(rows->sorted_unique_indices), slices.table_rows};
}

Result<CoalescePaddedOutput> CoalescePadded(const IndexedSlicesView& slices, int64_t max_unique,
                                            const Context& ctx) noexcept {
  constexpr std::string_view op = "Coalesce";
  const Result<GradProblem> problem = CheckSlices(op, slices);
  if (!problem.ok()) return problem.status();
  if (slices.indices.dtype == DType::kInt32 && slices.table_rows > INT32_MAX) {
    return InvalidArgument(op,
                           "padding has the index table_rows, which int32 cannot hold [table_rows: expected at most ",
                           INT32_MAX, ", or int64 indices, got ", slices.table_rows, "]");
  }
  Result<SparseSegmentGradV2PaddedOutput> rows =
      sparse_segment::GradV2Padded(*problem, PaddedForm::kCoalesce, max_unique, ctx);
  if (!rows.ok()) return rows.status();
  return CoalescePaddedOutput{std::move(rows->output), std::move(rows->sorted_unique_indices), std::move(rows->report),
                              slices.table_rows};
}

double RateOf(const Adam& update) noexcept {
  return cpu::InFloatEnvironment([&] { return sparse_segment::AdamRate(update); });
}

Status ApplyRows(const IndexedSlicesView& slices, const RowUpdate& update, const MutableTensorView& table,
                 const Context& ctx) noexcept {
  return Apply(CheckSlices("ApplyRows", slices), update, table, ctx);
}

Status SparseSegmentGradApply(const SegmentPooling& pooling, const TensorView& grad, const TensorView& indices,
                              const TensorView& segment_ids, const RowUpdate& update, const MutableTensorView& table,
                              const Context& ctx) noexcept {
  const std::string_view op = ApplyName(pooling.combiner);
  const Result<int64_t> table_rows = TableRowsOf(op, table);
  if (!table_rows.ok()) return table_rows.status();
  return Apply(CheckGrad(op, pooling, grad, indices, segment_ids, *table_rows), update, table, ctx);
}

Status SparseSegmentGradApply(const SegmentPooling& pooling, const TensorView& grad, const SegmentPlan& plan,
                              const RowUpdate& update, const MutableTensorView& table, const Context& ctx) noexcept {
  const std::string_view op = ApplyName(pooling.combiner);
  return UsingPlan(op, plan, ctx, [&] { return Apply(CheckWithPlan(op, pooling, grad, plan), update, table, ctx); });
}

}  // namespace raggrad
