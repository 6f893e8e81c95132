// The interface of the backends. Internal to the family.
#pragma once

#include <optional>
#include <string_view>

#include "raggrad/core/padded_report.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/row_update.h"
#include "raggrad/ops/sparse_segment/segment_order.h"
#include "raggrad/ops/sparse_segment/segment_plan.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::sparse_segment {

// The columns of a row: the product of the inner dimensions. 0 for a table without rows, whose inner dimensions may
// have a product that does not fit in 63 bits.
inline int64_t WidthOf(const TensorView& grad, int64_t table_rows) noexcept {
  return table_rows == 0 ? 0 : Shape::Product(grad.shape.tail()).value_or(0);
}

// A gradient whose operands' shapes and types have been checked.
struct GradProblem {
  SegmentIds ids;
  SegmentCombiner combiner;
  TensorView grad;                           // [ids.num_segments, inner...]
  const SegmentWeights* weights = nullptr;   // [ids.n()]; null: every weight is 1
  const SegmentPlan::State* plan = nullptr;  // made from these ids earlier; null: the backend makes one
  bool coalesced = false;                    // ids have no segments and, as the caller knows, ascend without repeats
  DType index_dtype = ids.indices.dtype;     // of sorted_unique_indices
  int64_t width = WidthOf(grad, ids.table_rows);

  bool is_scaled() const noexcept { return combiner != SegmentCombiner::kSum && width > 0; }
  bool is_weighted() const noexcept { return weights != nullptr && width > 0; }
  bool divides_by_count() const noexcept {
    return is_scaled() && (weights == nullptr || weights->divisor == WeightDivisor::kCount);
  }
};

// The rate that a rule has in memory. Its dtype is kInvalid if it has none.
inline const TensorView& RateInMemory(const RowUpdate& update) noexcept {
  if (const auto* sgd = std::get_if<Sgd>(&update)) return sgd->rate;
  if (const auto* adagrad = std::get_if<Adagrad>(&update)) return adagrad->rate;
  if (const auto* adam = std::get_if<Adam>(&update)) return adam->rate;
  return std::get_if<RowwiseAdagrad>(&update)->rate;
}

// A checked row update and its table. Table and states are [ids.table_rows, inner...], states in the type of sums.
struct UpdateProblem {
  const RowUpdate& update;
  const MutableTensorView& table;
};

// A forward whose operands' shapes and types have been checked.
struct ForwardProblem {
  std::string_view op;  // for messages
  SegmentCombiner combiner;
  TensorView data;                      // [table_rows, inner...]
  TensorView indices;                   // [n]
  TensorView segment_ids;               // [n]
  std::optional<int64_t> num_segments;  // in [0, 2^31); unset: the last segment id decides
  bool ids_checked = false;             // true: they come from a plan
  const SegmentWeights* weights = nullptr;
  const int64_t* starts = nullptr;  // on a GPU, of a plan: where each segment begins, and n; null: not known

  int64_t n() const noexcept { return indices.dim(0); }
};

// A forward whose segment ids come in any order. num_segments is set. Indices without data are 0, 1, 2, ...; then there
// are no weights.
struct SegmentsProblem {
  ForwardProblem forward;
  OutOfRange out_of_range;
  bool ascending;  // as in Segments

  bool has_indices() const noexcept { return forward.indices.data != nullptr; }
  Segments segments() const noexcept { return {forward.segment_ids, *forward.num_segments, out_of_range, ascending}; }
};

// The gradient of a forward's weights, which are set.
struct WeightsGradProblem {
  ForwardProblem forward;
  TensorView grad;  // [*forward.num_segments, inner...], in the type of data
};

// The types of SparseSegmentSum; Mean and SqrtN have only FloatTypes.
using SumTypes =
    JoinLists<FloatTypes, TypeList<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>>;

inline Status CheckDataType(std::string_view op, SegmentCombiner combiner, DType dtype) noexcept {
  return combiner == SegmentCombiner::kSum ? CheckDType(op, "data", dtype, SumTypes{})
                                           : CheckDType(op, "data", dtype, FloatTypes{});
}

// Chooses what belongs to the combiner, such as an operator's name.
template <class T>
constexpr T ByCombiner(SegmentCombiner combiner, T sum, T mean, T sqrtn) noexcept {
  return combiner == SegmentCombiner::kSum ? sum : combiner == SegmentCombiner::kMean ? mean : sqrtn;
}

namespace on_cpu {
Result<SparseSegmentGradV2Output> GradV2(const GradProblem& problem, const Context& ctx) noexcept;
Result<SparseSegmentGradV2PaddedOutput> GradV2Padded(const GradProblem& problem, PaddedForm form, int64_t max_unique,
                                                     const Context& ctx) noexcept;
Result<Tensor> Grad(const GradProblem& problem, const Context& ctx) noexcept;
// Puts the rows of GradV2, rounded to grad's type, into the update instead of an output.
Status GradApply(const GradProblem& problem, const UpdateProblem& update, const Context& ctx) noexcept;
Result<Tensor> Forward(const ForwardProblem& problem, const Context& ctx) noexcept;
Result<Tensor> PoolSegments(const SegmentsProblem& problem, const Context& ctx) noexcept;
Result<Tensor> WeightsGrad(const WeightsGradProblem& problem, const Context& ctx) noexcept;
}  // namespace on_cpu

namespace on_cuda {
Result<SparseSegmentGradV2Output> GradV2(const GradProblem& problem, const Context& ctx) noexcept;
Result<SparseSegmentGradV2PaddedOutput> GradV2Padded(const GradProblem& problem, PaddedForm form, int64_t max_unique,
                                                     const Context& ctx) noexcept;
Result<Tensor> Grad(const GradProblem& problem, const Context& ctx) noexcept;
Status GradApply(const GradProblem& problem, const UpdateProblem& update, const Context& ctx) noexcept;
Result<Tensor> Forward(const ForwardProblem& problem, const Context& ctx) noexcept;
Result<Tensor> PoolSegments(const SegmentsProblem& problem, const Context& ctx) noexcept;
Result<Tensor> WeightsGrad(const WeightsGradProblem& problem, const Context& ctx) noexcept;
// Fills the part of a plan that lies in device memory. Calls `meanwhile` before it waits, if it does.
Status MakePlan(const SegmentIds& ids, const Context& ctx, SegmentPlan::State& state,
                FunctionRef<void()> meanwhile) noexcept;
// The first i with ids[i] != planned[i], or the number of ids.
Result<int64_t> FirstDifference(const TensorView& ids, const int32_t* planned, const Context& ctx) noexcept;

// The kernels of this family in libraggrad_cuda.so.
struct Kernels {
  static constexpr char kSymbol[] = "raggrad_cuda_sparse_segment";

  decltype(&GradV2) grad_v2;
  decltype(&GradV2Padded) grad_v2_padded;
  decltype(&Grad) grad;
  decltype(&GradApply) grad_apply;
  decltype(&Forward) forward;
  decltype(&PoolSegments) pool_segments;
  decltype(&WeightsGrad) weights_grad;
  decltype(&MakePlan) make_plan;
  decltype(&FirstDifference) first_difference;
};
}  // namespace on_cuda

// Run the backend of the operands' device.
Result<SparseSegmentGradV2Output> GradV2(const GradProblem& problem, const Context& ctx) noexcept;
Result<SparseSegmentGradV2PaddedOutput> GradV2Padded(const GradProblem& problem, PaddedForm form, int64_t max_unique,
                                                     const Context& ctx) noexcept;
Result<Tensor> Grad(const GradProblem& problem, const Context& ctx) noexcept;
Status GradApply(const GradProblem& problem, const UpdateProblem& update, const Context& ctx) noexcept;
Result<Tensor> Forward(const ForwardProblem& problem, const Context& ctx) noexcept;
Result<Tensor> WeightsGrad(const WeightsGradProblem& problem, const Context& ctx) noexcept;

}  // namespace raggrad::sparse_segment
