#include "raggrad/capi/raggrad_c_weighted.h"

#include "raggrad/capi/c_call.h"
#include "raggrad/capi/c_segment.h"
#include "raggrad/core/error_text.h"

using namespace raggrad;  // NOLINT: everything here belongs to C
using raggrad::capi::CCall;
using raggrad::capi::Store;

namespace {

struct WeightedIds {
  SegmentPooling pooling;
  const SegmentPlan* plan;  // null: the ids are below
  TensorView indices;
  TensorView segment_ids;
};

WeightedIds ReadIds(CCall& call, int32_t combiner, const rg_weighted_ids* ids) noexcept {
  const SegmentCombiner combine = call.ReadCombiner(combiner);
  const rg_weighted_ids known = call.ReadStruct("ids", ids);
  if (known.divisor != RG_BY_WEIGHTS && known.divisor != RG_BY_COUNT) {
    call.Note(InvalidArgument(call.function(),
                              "no such divisor [ids.divisor: expected RG_BY_WEIGHTS (0) or RG_BY_COUNT (1), got ",
                              known.divisor, "]"));
  }
  if (known.plan != nullptr && (known.indices != nullptr || known.segment_ids != nullptr)) {
    call.Note(InvalidArgument(call.function(),
                              "there are ids beside the plan [ids.plan: expected NULL, or ids.indices and "
                              "ids.segment_ids to be NULL]"));
  }
  const auto divisor = known.divisor == RG_BY_COUNT ? WeightDivisor::kCount : WeightDivisor::kWeights;
  WeightedIds read{{combine, {call.Read("ids.weights", known.weights), divisor}}, nullptr, {}, {}};
  if (known.plan != nullptr) {
    read.plan = &*known.plan->plan;
  } else {
    read.indices = call.Read("ids.indices", known.indices);
    read.segment_ids = call.Read("ids.segment_ids", known.segment_ids);
  }
  return read;
}

// Checks a size that a plan knows as well.
void CheckSize(CCall& call, std::string_view argument, int64_t given, int64_t planned) noexcept {
  if (given == planned) return;
  call.Note(InvalidArgument(call.function(), "the plan was made for another size [", argument, ": expected ", planned,
                            ", got ", given, "]"));
}

}  // namespace

rg_status rg_weighted_segment(const rg_context* context, int32_t combiner, const rg_tensor* data,
                              const rg_weighted_ids* ids, int64_t num_segments, rg_output* output, rg_error* error) {
  CCall call("rg_weighted_segment", context, error, {output});
  const TensorView d = call.Read("data", data);
  const WeightedIds in = ReadIds(call, combiner, ids);
  if (in.plan != nullptr && num_segments != -1) {
    CheckSize(call, "num_segments", num_segments, in.plan->sizes().num_segments);
  }
  return call.Run(
      [&](const Context& ctx) {
        if (in.plan != nullptr) return SparseSegment(in.pooling, d, *in.plan, ctx);
        if (num_segments == -1) return SparseSegment(in.pooling, d, in.indices, in.segment_ids, ctx);
        return SparseSegmentWithNumSegments(in.pooling, d, in.indices, in.segment_ids, TensorView::Scalar(num_segments),
                                            ctx);
      },
      [&](Tensor& result) { Store(result, output); });
}

rg_status rg_weighted_segment_grad_slices(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                          const rg_weighted_ids* ids, int64_t table_rows, rg_output* slice_values,
                                          rg_output* slice_indices, rg_error* error) {
  CCall call("rg_weighted_segment_grad_slices", context, error, {slice_values, slice_indices});
  const TensorView g = call.Read("grad", grad);
  const WeightedIds in = ReadIds(call, combiner, ids);
  if (in.plan == nullptr) {
    return call.Run(
        [&](const Context& ctx) {
          return SparseSegmentGradSlices(in.pooling, g, in.indices, in.segment_ids, table_rows, ctx);
        },
        [&](IndexedSlices& result) { capi::StoreSlices(result, slice_values, slice_indices); });
  }
  CheckSize(call, "table_rows", table_rows, in.plan->sizes().table_rows);
  return call.Run([&](const Context& ctx) { return SparseSegmentGradV2(in.pooling, g, *in.plan, ctx); },
                  [&](SparseSegmentGradV2Output& result) {
                    Store(result.output, slice_values);
                    Store(result.sorted_unique_indices, slice_indices);
                  });
}

rg_status rg_weighted_segment_grad(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                   const rg_weighted_ids* ids, int32_t table_rows, rg_output* output, rg_error* error) {
  CCall call("rg_weighted_segment_grad", context, error, {output});
  const TensorView g = call.Read("grad", grad);
  const WeightedIds in = ReadIds(call, combiner, ids);
  if (in.plan != nullptr) CheckSize(call, "table_rows", table_rows, in.plan->sizes().table_rows);
  return call.Run(
      [&](const Context& ctx) {
        if (in.plan != nullptr) return SparseSegmentGrad(in.pooling, g, *in.plan, ctx);
        return SparseSegmentGrad(in.pooling, g, in.indices, in.segment_ids, TensorView::Scalar(table_rows), ctx);
      },
      [&](Tensor& result) { Store(result, output); });
}

rg_status rg_weighted_segment_grad_padded(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                          const rg_weighted_ids* ids, int32_t table_rows, int64_t max_unique,
                                          rg_output* output, rg_output* sorted_unique_indices, rg_output* report,
                                          rg_error* error) {
  CCall call("rg_weighted_segment_grad_padded", context, error, {output, sorted_unique_indices, report});
  const TensorView g = call.Read("grad", grad);
  const WeightedIds in = ReadIds(call, combiner, ids);
  if (in.plan != nullptr) {
    call.Note(InvalidArgument(call.function(), "padded forms have no plans [ids.plan: expected NULL]"));
  }
  return call.Run(
      [&](const Context& ctx) {
        return SparseSegmentGradV2Padded(in.pooling, g, in.indices, in.segment_ids, TensorView::Scalar(table_rows),
                                         max_unique, ctx);
      },
      [&](SparseSegmentGradV2PaddedOutput& result) {
        Store(result.output, output);
        Store(result.sorted_unique_indices, sorted_unique_indices);
        Store(result.report, report);
      });
}

rg_status rg_weighted_segment_grad_apply(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                         const rg_weighted_ids* ids, const rg_row_update* update,
                                         const rg_mutable_tensor* table, rg_error* error) {
  CCall call("rg_weighted_segment_grad_apply", context, error, {});
  const TensorView g = call.Read("grad", grad);
  const WeightedIds in = ReadIds(call, combiner, ids);
  const RowUpdate rule = capi::ReadUpdate(call, update);
  const MutableTensorView rows = call.Read("table", table);
  return call.Run([&](const Context& ctx) {
    if (in.plan != nullptr) return SparseSegmentGradApply(in.pooling, g, *in.plan, rule, rows, ctx);
    return SparseSegmentGradApply(in.pooling, g, in.indices, in.segment_ids, rule, rows, ctx);
  });
}

rg_status rg_weighted_segment_weights_grad(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                           const rg_tensor* data, const rg_weighted_ids* ids, rg_output* output,
                                           rg_error* error) {
  CCall call("rg_weighted_segment_weights_grad", context, error, {output});
  const TensorView g = call.Read("grad", grad);
  const TensorView d = call.Read("data", data);
  const WeightedIds in = ReadIds(call, combiner, ids);
  return call.Run(
      [&](const Context& ctx) {
        if (in.plan != nullptr) return SparseSegmentWeightsGrad(in.pooling, g, d, *in.plan, ctx);
        return SparseSegmentWeightsGrad(in.pooling, g, d, in.indices, in.segment_ids, ctx);
      },
      [&](Tensor& result) { Store(result, output); });
}
