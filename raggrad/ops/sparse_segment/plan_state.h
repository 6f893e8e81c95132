// What a SegmentPlan holds. Internal to the family.
#pragma once

#include "raggrad/ops/sparse_segment/plan.h"
#include "raggrad/ops/sparse_segment/segment_plan.h"

namespace raggrad {

struct SegmentPlan::State {
  Sizes sizes;
  DType index_dtype;
  // As they came, for the forward and for CheckMadeFrom.
  Scratch<int32_t> indices;
  Scratch<int32_t> segment_ids;
  int64_t num_ids;
  bool ascending;
  sparse_segment::Plan<sparse_segment::Contribution> sorted;

  TensorView indices_view() const noexcept { return TensorView::Of(indices.data(), Shape{num_ids}); }
  TensorView segment_ids_view() const noexcept { return TensorView::Of(segment_ids.data(), Shape{num_ids}); }
};

namespace sparse_segment {

// The operands of a gradient with a plan, checked.
Result<Problem> CheckWithPlan(std::string_view op, SegmentCombiner combiner, const TensorView& grad,
                              const SegmentPlan& plan) noexcept;

}  // namespace sparse_segment
}  // namespace raggrad
