// The C forms of plans and slices. Internal to the library.
#pragma once

#include <optional>

#include "raggrad/capi/c_call.h"
#include "raggrad/capi/c_context.h"
#include "raggrad/capi/raggrad_c_segment.h"
#include "raggrad/ops/sparse_segment/indexed_slices.h"
#include "raggrad/ops/sparse_segment/segment_plan.h"

struct rg_segment_plan {
  raggrad::capi::GivenContext given;         // outlives the plan, whose memory it gives back
  std::optional<raggrad::SegmentPlan> plan;  // set in every plan that a program has
};

namespace raggrad::capi {

inline IndexedSlicesView ReadSlices(CCall& call, const rg_indexed_slices* slices) noexcept {
  const rg_indexed_slices known = call.ReadStruct("slices", slices);
  return {call.Read("slices.values", known.values), call.Read("slices.indices", known.indices), known.table_rows};
}

}  // namespace raggrad::capi
