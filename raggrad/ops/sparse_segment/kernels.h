// What the checks hand to a backend. Internal to the family.
#pragma once

#include <optional>
#include <string_view>

#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::sparse_segment {

// Operands whose shapes and types have been checked. Only Check() in sparse_segment.cc makes one.
struct Problem {
  std::string_view op;  // for messages
  SegmentCombiner combiner;
  TensorView grad;         // [segments, inner...]
  TensorView indices;      // [n]
  TensorView segment_ids;  // [n]
  int64_t dim0;
  int64_t width;        // product of inner
  bool segments_first;  // which fault is reported first: TensorFlow's V1 Mean and SqrtN check all segment ids before
                        // the indices, everybody else index and segment id one by one
  int64_t n() const noexcept { return indices.dim(0); }
  int64_t segments() const noexcept { return grad.dim(0); }
};

// The same for the forwards. Only Check() in forward.cc makes one.
struct ForwardProblem {
  std::string_view op;  // for messages
  SegmentCombiner combiner;
  TensorView data;                      // [rows, inner...]
  TensorView indices;                   // [n]
  TensorView segment_ids;               // [n]
  std::optional<int64_t> num_segments;  // in [0, 2^31); unset: the last segment id tells

  int64_t n() const noexcept { return indices.dim(0); }
};

// What SparseSegmentSum takes; the others only FloatTypes.
using SumTypes =
    JoinLists<FloatTypes, TypeList<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>>;

namespace cpu {
Result<SparseSegmentGradV2Output> GradV2(const Problem& problem, const Context& ctx) noexcept;
Result<Tensor> Grad(const Problem& problem, const Context& ctx) noexcept;
Result<Tensor> Forward(const ForwardProblem& problem, const Context& ctx) noexcept;
}  // namespace cpu

}  // namespace raggrad::sparse_segment
