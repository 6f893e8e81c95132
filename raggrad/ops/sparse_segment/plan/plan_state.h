// The members of a SegmentPlan. Internal to the family.
#pragma once

#include <memory>

#include "raggrad/cuda/stream_uses.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/plan/device_plan.h"
#include "raggrad/ops/sparse_segment/plan/plan_cpu.h"
#include "raggrad/ops/sparse_segment/segment_plan.h"

namespace raggrad {

// The number of unique rows of a plan on a GPU. The host learns it later than that the ids are good: in between the GPU
// sorts them, some 40 us for a million.
class LateCount {
 public:
  virtual ~LateCount() = default;
  // Waits until the plan is made. Fails only if CUDA as a whole does. Any thread may call it.
  virtual Result<int64_t> Await() const noexcept = 0;
};

struct SegmentPlan::State {
  Sizes sizes;
  DType index_dtype;
  Device device;  // of the ids, and of all below
  // The ids as they came, for the forward and for CheckMadeFrom.
  Scratch<int32_t> indices;
  Scratch<int64_t> wide_indices;  // instead of `indices`, if these need more than 31 bits
  Scratch<int32_t> segment_ids;
  Scratch<int64_t> starts;  // on a GPU: where the ids of each segment begin, and their number; only of bags
  int64_t num_ids;
  bool ascending;
  bool weighted;                 // whether calls with weights may use the plan
  bool waits;                    // false: `report` has the fault in the ids, if there is one
  Scratch<PaddedReport> report;  // one, if !waits
  // The device decides which of these is filled.
  sparse_segment::Plan<sparse_segment::Contribution> sorted;
  sparse_segment::on_cuda::Plan device_sorted;
  std::unique_ptr<LateCount> late_count;  // on a GPU; null without ids, and if !waits
  // On a GPU: the stream that made the plan, in whose order its memory is freed, and the other streams that use it.
  cuda::StreamId owner;
  mutable cuda::StreamUses uses;

  ~State() { uses.Delay(owner); }

  // Not for plans that were made without waiting.
  Result<int64_t> num_unique() const noexcept {
    if (device.is_cpu()) return sorted.num_unique;
    return late_count != nullptr ? late_count->Await() : Result<int64_t>(0);
  }
  bool wide() const noexcept { return index_dtype == DType::kInt64 && sizes.table_rows > INT32_MAX; }
  TensorView indices_view() const noexcept {
    return wide() ? View(wide_indices.data(), DType::kInt64) : View(indices.data(), DType::kInt32);
  }
  TensorView segment_ids_view() const noexcept { return View(segment_ids.data(), DType::kInt32); }

 private:
  TensorView View(const void* ids, DType dtype) const noexcept { return {ids, dtype, Shape{num_ids}, device}; }
};

namespace sparse_segment {

// The checked operands of a gradient with a plan.
Result<GradProblem> CheckWithPlan(std::string_view op, const SegmentPooling& pooling, const TensorView& grad,
                                  const SegmentPlan& plan) noexcept;

// Checks that the operand is on the plan's device and has the rows that the plan was made for.
Status CheckRowsOfPlan(std::string_view op, std::string_view name, const TensorView& view,
                       const SegmentPlan::State& plan, std::string_view what, int64_t expected) noexcept;

// Checks that the plan is one that a forward can use.
Status CheckAscending(std::string_view op, const SegmentPlan::State& plan) noexcept;

// The forward of a plan's ids. The operands are checked.
ForwardProblem ForwardOf(std::string_view op, const SegmentPooling& pooling, const TensorView& data,
                         const SegmentPlan::State& plan) noexcept;

// Returns call(), which uses the plan. On another stream than the plan's own it begins when the plan is made, and the
// plan remembers the stream.
template <class F>
auto UsingPlan(std::string_view op, const SegmentPlan& plan, const Context& ctx, const F& call) noexcept
    -> decltype(call()) {
  const SegmentPlan::State& state = plan.state();
  if (state.device.is_cpu()) return call();
  const Result<bool> own = cuda::IsOwner(op, ctx.stream, state.owner);
  if (!own.ok()) return own.status();
  if (*own) return call();
  if (const Result<int64_t> made = state.num_unique(); !made.ok()) return made.status();
  auto result = call();
  if (Status s = state.uses.Add(op, state.device, ctx.stream); !s.ok()) return s;
  return result;
}

}  // namespace sparse_segment
}  // namespace raggrad
