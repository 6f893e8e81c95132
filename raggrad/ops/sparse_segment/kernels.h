// What the checks hand to a backend. Internal to the family.
#pragma once

#include <optional>
#include <string_view>

#include "raggrad/ops/sparse_segment/row_update.h"
#include "raggrad/ops/sparse_segment/segment_plan.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::sparse_segment {

struct Contribution;
template <class C>
struct Plan;
namespace cuda {
struct Plan;
}

// Operands whose shapes and types have been checked.
struct Problem {
  std::string_view op;  // for messages
  SegmentCombiner combiner;
  TensorView grad;         // [segments, inner...]
  TensorView indices;      // [n]
  TensorView segment_ids;  // [n]; no data: id i is segment i
  int64_t dim0;
  int64_t width;  // WidthOf(grad, dim0)
  // Which fault is reported first: TensorFlow's V1 Mean and SqrtN check all segment ids before the indices, everybody
  // else index and segment id one by one.
  bool segments_first = false;
  DType index_dtype = indices.dtype;  // of sorted_unique_indices
  // Of these indices and segment ids, if there is one already, for the device that they are on.
  const Plan<Contribution>* plan = nullptr;
  const cuda::Plan* device_plan = nullptr;

  int64_t n() const noexcept { return indices.dim(0); }
  int64_t segments() const noexcept { return grad.dim(0); }
  bool id_is_segment() const noexcept { return segment_ids.data == nullptr; }
};

// The columns of a row of the result: the product of the inner dimensions. 0 if there are no rows, for then the product
// may be one that cannot be counted, in elements or in bytes.
inline int64_t WidthOf(const TensorView& grad, int64_t dim0) noexcept {
  return dim0 == 0 ? 0 : Shape::Product(grad.shape.tail()).value_or(0);
}

// A row update and its table, checked: table and states are [problem.dim0, inner...], states in the type of sums.
struct UpdateProblem {
  const RowUpdate& rule;
  const MutableTensorView& table;
};

// The same for the forwards.
struct ForwardProblem {
  std::string_view op;  // for messages
  SegmentCombiner combiner;
  TensorView data;                      // [rows, inner...]
  TensorView indices;                   // [n]
  TensorView segment_ids;               // [n]
  std::optional<int64_t> num_segments;  // in [0, 2^31); unset: the last segment id tells
  bool ids_checked = false;             // they come from a plan

  int64_t n() const noexcept { return indices.dim(0); }
};

// What SparseSegmentSum takes; the others only FloatTypes.
using SumTypes =
    JoinLists<FloatTypes, TypeList<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>>;

namespace cpu {
Result<SparseSegmentGradV2Output> GradV2(const Problem& problem, const Context& ctx) noexcept;
Result<Tensor> Grad(const Problem& problem, const Context& ctx) noexcept;
// The rows of GradV2, rounded to grad's type, go into the update instead of an output.
Status GradApply(const Problem& problem, const UpdateProblem& update, const Context& ctx) noexcept;
Result<Tensor> Forward(const ForwardProblem& problem, const Context& ctx) noexcept;
}  // namespace cpu

namespace cuda {
Result<SparseSegmentGradV2Output> GradV2(const Problem& problem, const Context& ctx) noexcept;
Result<SparseSegmentGradV2PaddedOutput> GradV2Padded(const Problem& problem, int64_t max_unique,
                                                     const Context& ctx) noexcept;
Result<Tensor> Grad(const Problem& problem, const Context& ctx) noexcept;
Status GradApply(const Problem& problem, const UpdateProblem& update, const Context& ctx) noexcept;
Result<Tensor> Forward(const ForwardProblem& problem, const Context& ctx) noexcept;
// Fills what a plan of the problem's ids holds in device memory.
Status MakePlan(const Problem& problem, const Context& ctx, SegmentPlan::State& state) noexcept;
// The first i with ids[i] != planned[i], or the number of ids.
Result<int64_t> FirstDifference(const TensorView& ids, const int32_t* planned, const Context& ctx) noexcept;

// What libraggrad_cuda.so has of this family.
struct Kernels {
  static constexpr char kSymbol[] = "raggrad_cuda_sparse_segment";

  decltype(&GradV2) grad_v2;
  decltype(&GradV2Padded) grad_v2_padded;
  decltype(&Grad) grad;
  decltype(&GradApply) grad_apply;
  decltype(&Forward) forward;
  decltype(&MakePlan) make_plan;
  decltype(&FirstDifference) first_difference;
};
}  // namespace cuda

// On the device that the operands are on.
Result<SparseSegmentGradV2Output> GradV2(const Problem& problem, const Context& ctx) noexcept;
Result<Tensor> Grad(const Problem& problem, const Context& ctx) noexcept;
Status GradApply(const Problem& problem, const UpdateProblem& update, const Context& ctx) noexcept;
Result<Tensor> Forward(const ForwardProblem& problem, const Context& ctx) noexcept;

}  // namespace raggrad::sparse_segment
