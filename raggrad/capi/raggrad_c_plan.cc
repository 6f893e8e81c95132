// Plans, and the operators that use them.
#include <new>

#include "raggrad/capi/c_call.h"
#include "raggrad/capi/c_segment.h"
#include "raggrad/core/error_text.h"

using namespace raggrad;  // NOLINT: everything here belongs to C
using raggrad::capi::CCall;
using raggrad::capi::Store;

rg_status rg_segment_plan_make(const rg_context* context, const rg_tensor* indices, const rg_tensor* segment_ids,
                               int64_t table_rows, int64_t num_segments, rg_segment_plan** plan, rg_error* error) {
  constexpr std::string_view kFunction = "rg_segment_plan_make";
  CCall call(kFunction, nullptr, error, {});
  if (!call.Given("plan", plan)) return call.Report();
  *plan = nullptr;
  const TensorView i = call.Read("indices", indices);
  const TensorView s = call.Read("segment_ids", segment_ids);
  auto* const made = new (std::nothrow) rg_segment_plan;
  if (made == nullptr) call.Note(MakeError(Code::kResourceExhausted, kFunction, ": no memory for the plan"));
  if (made != nullptr) call.Note(made->given.Read(kFunction, context));
  if (call.ok()) {
    Result<SegmentPlan> result = SegmentPlan::Make(i, s, {table_rows, num_segments}, made->given.context());
    call.Note(made->given.Explain(kFunction, result.status()));
    if (result.ok()) made->plan.emplace(*std::move(result));
  }
  if (call.ok()) {
    *plan = made;
  } else {
    delete made;
  }
  return call.Report();
}

void rg_segment_plan_destroy(rg_segment_plan* plan) { delete plan; }

rg_status rg_segment_plan_get_sizes(const rg_segment_plan* plan, rg_segment_plan_sizes* sizes, rg_error* error) {
  CCall call("rg_segment_plan_get_sizes", nullptr, error, {});
  call.Given("plan", plan);
  return call.Run([&](const Context&) {
    const SegmentPlan& made = *plan->plan;
    return capi::WriteStruct(call.function(), {"sizes"}, sizes,
                             {0, made.num_ids(), made.num_unique(), made.sizes().table_rows, made.sizes().num_segments,
                              made.ascending() ? 1 : 0});
  });
}

rg_status rg_segment_plan_check_made_from(const rg_context* context, const rg_segment_plan* plan,
                                          const rg_tensor* indices, const rg_tensor* segment_ids, rg_error* error) {
  CCall call("rg_segment_plan_check_made_from", context, error, {});
  call.Given("plan", plan);
  const TensorView i = call.Read("indices", indices);
  const TensorView s = call.Read("segment_ids", segment_ids);
  return call.Run([&](const Context& ctx) { return plan->plan->CheckMadeFrom(i, s, ctx); });
}

rg_status rg_sparse_segment_grad_v2_with_plan(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                              const rg_segment_plan* plan, rg_output* output,
                                              rg_output* sorted_unique_indices, rg_error* error) {
  CCall call("rg_sparse_segment_grad_v2_with_plan", context, error, {output, sorted_unique_indices});
  const SegmentCombiner combine = call.ReadCombiner(combiner);
  const TensorView g = call.Read("grad", grad);
  call.Given("plan", plan);
  return call.Run([&](const Context& ctx) { return SparseSegmentGradV2(combine, g, *plan->plan, ctx); },
                  [&](SparseSegmentGradV2Output& result) {
                    Store(result.output, output);
                    Store(result.sorted_unique_indices, sorted_unique_indices);
                  });
}

rg_status rg_sparse_segment_grad_with_plan(const rg_context* context, int32_t combiner, const rg_tensor* grad,
                                           const rg_segment_plan* plan, rg_output* output, rg_error* error) {
  CCall call("rg_sparse_segment_grad_with_plan", context, error, {output});
  const SegmentCombiner combine = call.ReadCombiner(combiner);
  const TensorView g = call.Read("grad", grad);
  call.Given("plan", plan);
  return call.Run([&](const Context& ctx) { return SparseSegmentGrad(combine, g, *plan->plan, ctx); },
                  [&](Tensor& result) { Store(result, output); });
}

rg_status rg_sparse_segment_with_plan(const rg_context* context, int32_t combiner, const rg_tensor* data,
                                      const rg_segment_plan* plan, rg_output* output, rg_error* error) {
  CCall call("rg_sparse_segment_with_plan", context, error, {output});
  const SegmentCombiner combine = call.ReadCombiner(combiner);
  const TensorView d = call.Read("data", data);
  call.Given("plan", plan);
  return call.Run([&](const Context& ctx) { return SparseSegment(combine, d, *plan->plan, ctx); },
                  [&](Tensor& result) { Store(result, output); });
}
