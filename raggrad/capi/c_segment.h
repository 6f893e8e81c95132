// The C forms of plans, slices and updates. Internal to the library.
#pragma once

#include <optional>

#include "raggrad/capi/c_call.h"
#include "raggrad/capi/c_context.h"
#include "raggrad/capi/raggrad_c_segment.h"
#include "raggrad/core/error_text.h"
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

inline void StoreSlices(IndexedSlices& slices, rg_output* values, rg_output* indices) noexcept {
  Store(slices.values, values);
  Store(slices.indices, indices);
}

inline RowUpdate ReadUpdate(CCall& call, const rg_row_update* update) noexcept {
  const rg_row_update known = call.ReadStruct("update", update);
  switch (known.rule) {
    case RG_SGD:
      return Sgd{known.learning_rate};
    case RG_ADAGRAD:
      return Adagrad{known.learning_rate, known.epsilon, call.Read("update.accumulator", known.accumulator)};
    case RG_ADAM:
      return Adam{known.learning_rate,
                  known.beta1,
                  known.beta2,
                  known.epsilon,
                  known.step,
                  call.Read("update.m", known.m),
                  call.Read("update.v", known.v)};
    case RG_ROWWISE_ADAGRAD:
      return RowwiseAdagrad{known.learning_rate, known.epsilon, call.Read("update.accumulator", known.accumulator)};
    default:
      call.Note(InvalidArgument(call.function(),
                                "no such rule [update.rule: expected RG_SGD (0), RG_ADAGRAD (1), RG_ADAM (2) or "
                                "RG_ROWWISE_ADAGRAD (3), got ",
                                known.rule, "]"));
      return Sgd{0};
  }
}

}  // namespace raggrad::capi
