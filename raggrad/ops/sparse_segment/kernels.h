// What the checks hand to a backend. Internal to the family.
#pragma once

#include <optional>
#include <string_view>

#include "raggrad/ops/sparse_segment/row_update.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::sparse_segment {

struct Contribution;
template <class C>
struct Plan;

// Operands whose shapes and types have been checked.
struct Problem {
  std::string_view op;  // for messages
  SegmentCombiner combiner;
  TensorView grad;         // [segments, inner...]
  TensorView indices;      // [n]
  TensorView segment_ids;  // [n]; no data: id i is segment i
  int64_t dim0;
  int64_t width;  // product of inner
  // Which fault is reported first: TensorFlow's V1 Mean and SqrtN check all segment ids before the indices, everybody
  // else index and segment id one by one.
  bool segments_first = false;
  DType index_dtype = indices.dtype;         // of sorted_unique_indices
  const Plan<Contribution>* plan = nullptr;  // of these indices and segment ids, if there is one already

  int64_t n() const noexcept { return indices.dim(0); }
  int64_t segments() const noexcept { return grad.dim(0); }
  bool id_is_segment() const noexcept { return segment_ids.data == nullptr; }
};

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

}  // namespace raggrad::sparse_segment
