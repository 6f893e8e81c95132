// The C form of a plan. Internal to the library.
#pragma once

#include <optional>

#include "raggrad/capi/c_context.h"
#include "raggrad/capi/raggrad_c_segment.h"
#include "raggrad/ops/sparse_segment/segment_plan.h"

struct rg_segment_plan {
  raggrad::capi::GivenContext given;         // outlives the plan, whose memory it gives back
  std::optional<raggrad::SegmentPlan> plan;  // set in every plan that a program has
};
