#include "raggrad/ops/sparse_segment/segment_plan.h"

#include <atomic>
#include <new>
#include <utility>

#include "raggrad/core/operands.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/bags/bags.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/plan/plan_state.h"

namespace raggrad {
namespace {

using cpu::ForEachChunkUntilStopped;
using cpu::SplitEvenly;
using cuda::RunOnDevice;
using sparse_segment::CheckAscending;
using sparse_segment::CheckIdOperands;
using sparse_segment::CheckTableRows;
using sparse_segment::Contribution;
using sparse_segment::KeepPositions;
using sparse_segment::MakePlan;
using sparse_segment::Plan;
using sparse_segment::SegmentIds;
using sparse_segment::on_cuda::Kernels;

constexpr std::string_view kOp = "SegmentPlan";
constexpr int64_t kGrain = 1 << 14;  // ids per chunk at least

Status CheckSizes(const SegmentPlan::Sizes& sizes, Device device) noexcept {
  if (Status s = CheckTableRows(kOp, "table_rows", sizes.table_rows); !s.ok()) return s;
  if (!device.is_cpu() && sizes.table_rows > INT32_MAX) {
    return MakeError(Code::kUnimplemented, kOp, ": too many rows for a plan on a GPU [table_rows: expected 0 to ",
                     INT32_MAX, ", got ", sizes.table_rows, "]");
  }
  if (sizes.num_segments >= 0 && sizes.num_segments <= INT32_MAX) return {};
  return InvalidArgument(kOp, "the number of segments is out of range [num_segments: expected 0 to ", INT32_MAX,
                         ", got ", sizes.num_segments, "]");
}

// Copies ids that are known to fit. Returns whether they ascend.
template <class Copy>
Result<bool> CopyIds(const TensorView& ids, const Context& ctx, Scratch<Copy>& copies) noexcept {
  Result<Scratch<Copy>> memory = Scratch<Copy>::Make(ctx, ids.dim(0));
  if (!memory.ok()) return memory.status();
  copies = *std::move(memory);
  Copy* const out = copies.data();
  Executor& executor = ExecutorOf(ctx);
  return Visit(IndexTypes{}, ids.dtype, [&]<class Id>() -> Result<bool> {
    const Id* in = ids.As<Id>();
    std::atomic<bool> ascending = true;
    const cpu::Chunks chunks = SplitEvenly(executor, ids.dim(0), kGrain);
    Status copied = ForEachChunkUntilStopped(executor, chunks, [&](int64_t, int64_t begin, int64_t end) {
      bool sorted = true;
      for (int64_t i = begin; i < end; ++i) {
        out[i] = static_cast<Copy>(in[i]);
        sorted &= i == 0 || in[i - 1] <= in[i];
      }
      if (!sorted) ascending.store(false, std::memory_order_relaxed);
    });
    if (!copied.ok()) return copied;
    return ascending.load();
  });
}

Status KeepIds(const TensorView& indices, const TensorView& segment_ids, const Context& ctx,
               SegmentPlan::State& state) noexcept {
  const Result<bool> copied =
      state.wide() ? CopyIds(indices, ctx, state.wide_indices) : CopyIds(indices, ctx, state.indices);
  if (!copied.ok()) return copied.status();
  const Result<bool> ascending = CopyIds(segment_ids, ctx, state.segment_ids);
  if (!ascending.ok()) return ascending.status();
  state.ascending = *ascending;
  return {};
}

Status MakeMeanScales(int64_t n, const Context& ctx, Plan<Contribution>& plan) noexcept {
  Result<Scratch<float>> scales = Scratch<float>::Make(ctx, n);
  if (!scales.ok()) return scales.status();
  Executor& executor = ExecutorOf(ctx);
  const cpu::Chunks chunks = SplitEvenly(executor, n, kGrain);
  Status scaled = ForEachChunkUntilStopped(executor, chunks, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      (*scales)[k] =
          sparse_segment::ScaleOf<float>(SegmentCombiner::kMean, plan.counts[plan.contributions[k].segment()]);
    }
  });
  plan.mean_scales = *std::move(scales);
  return scaled;
}

Status PlanOnCpu(const SegmentIds& ids, const Context& ctx, SegmentPlan::State& state) noexcept {
  const bool positions = ids.n() <= int64_t{UINT32_MAX};
  Result<Plan<Contribution>> sorted = MakePlan<Contribution>(ids, {.counts = true, .positions = positions}, ctx);
  if (!sorted.ok()) return sorted.status();
  state.sorted = *std::move(sorted);
  if (positions) {
    if (Status s = KeepPositions(ids, ctx, state.sorted); !s.ok()) return s;
  }
  if (Status s = MakeMeanScales(ids.n(), ctx, state.sorted); !s.ok()) return s;
  return KeepIds(ids.indices, ids.segment_ids, ctx, state);
}

Status FillOnCpu(const SegmentIds& ids, const Context& ctx, SegmentPlan::State& state) noexcept {
  if (ids.n() > 0) {
    if (Status s = PlanOnCpu(ids, ctx, state); !s.ok()) return s;
  }
  if (state.waits) return {};
  Result<Scratch<PaddedReport>> report = Scratch<PaddedReport>::Make(ctx, 1);
  if (!report.ok()) return report.status();
  (*report)[0] = {.count = static_cast<uint64_t>(state.sorted.num_unique),
                  .form = PaddedForm::kSegmentPlan,
                  .max = static_cast<uint64_t>(ids.n())};
  state.report = *std::move(report);
  return {};
}

Status CheckCanBeGood(int64_t num_ids, const SegmentPlan::Sizes& sizes) noexcept {
  if (num_ids == 0 || (sizes.table_rows > 0 && sizes.num_segments > 0)) return {};
  return InvalidArgument(kOp, "ids are out of range [expected none without rows or segments, got ", num_ids, " for ",
                         sizes.table_rows, " rows and ", sizes.num_segments, " segments]");
}

}  // namespace

struct SegmentPlan::How {
  bool waits = true;
  bool weighted = true;
  const Meanwhile* meanwhile = nullptr;
};

Result<SegmentPlan> SegmentPlan::Make(const TensorView& indices, const TensorView& segment_ids, const Sizes& sizes,
                                      const Context& ctx) noexcept {
  if (Status s = CheckIdOperands(kOp, indices, segment_ids); !s.ok()) return s;
  return Make({kOp, indices, segment_ids, sizes.table_rows, sizes.num_segments}, How{}, ctx);
}

Result<SegmentPlan> SegmentPlan::Make(const TensorView& indices, const TensorView& segment_ids, const Sizes& sizes,
                                      Meanwhile meanwhile, const Context& ctx) noexcept {
  if (Status s = CheckIdOperands(kOp, indices, segment_ids); !s.ok()) return s;
  Result<SegmentPlan> plan =
      Make({kOp, indices, segment_ids, sizes.table_rows, sizes.num_segments}, {.meanwhile = &meanwhile}, ctx);
  if (!plan.ok()) return plan;
  if (Status s = CheckAscending(kOp, plan->state()); !s.ok()) return s;
  return plan;
}

Result<SegmentPlan> SegmentPlan::MakeOfBags(const TensorView& ids, const TensorView& offsets, int64_t table_rows,
                                            bool weighted, Meanwhile meanwhile, const Context& ctx) noexcept {
  if (Status s = CheckBags({.ids = ids, .offsets = offsets}); !s.ok()) return s;
  const int64_t bags = offsets.dim(0);
  const How how = {.weighted = weighted, .meanwhile = &meanwhile};
  if (!ids.device.is_cpu() && bags > 0) {
    SegmentIds of_bags = {kOp, ids, /*segment_ids=*/{}, table_rows, bags};
    of_bags.offsets = &offsets;
    return Make(of_bags, how, ctx);
  }
  const Result<Bags> cut = CutIntoBags({.ids = ids, .offsets = offsets}, ctx);
  if (!cut.ok()) return cut.status();
  return Make({kOp, cut->ids, cut->segment_ids, table_rows, bags}, how, ctx);
}

Result<SegmentPlan> SegmentPlan::MakeWithoutWaiting(const TensorView& indices, const TensorView& segment_ids,
                                                    const Sizes& sizes, const Context& ctx) noexcept {
  if (Status s = CheckIdOperands(kOp, indices, segment_ids); !s.ok()) return s;
  Result<SegmentPlan> plan =
      Make({kOp, indices, segment_ids, sizes.table_rows, sizes.num_segments}, {.waits = false}, ctx);
  if (!plan.ok()) return plan;
  if (Status s = CheckAscending(kOp, plan->state()); !s.ok()) return s;
  return plan;
}

Result<SegmentPlan> SegmentPlan::Make(const SegmentIds& ids, const How& how, const Context& ctx) noexcept {
  const Sizes sizes = {ids.table_rows, ids.num_segments};
  if (Status s = CheckSizes(sizes, ids.indices.device); !s.ok()) return s;
  std::unique_ptr<State> made(new (std::nothrow) State{});
  if (made == nullptr) return MakeError(Code::kResourceExhausted, kOp, ": no memory");
  SegmentPlan plan(std::move(made));
  State& state = *plan.state_;
  state.sizes = sizes;
  state.index_dtype = ids.indices.dtype;
  state.device = ids.indices.device;
  state.num_ids = ids.n();
  state.ascending = true;
  state.waits = how.waits;
  state.weighted = how.weighted;
  // Bad ids become 0 until they are reported, so a forward needs a row and a segment of this number.
  const Status can_be_good = CheckCanBeGood(ids.n(), sizes);
  if (!how.waits && !can_be_good.ok()) return can_be_good;
  bool called = how.meanwhile == nullptr;
  const auto call_meanwhile = [&] {
    if (!std::exchange(called, true)) (*how.meanwhile)(plan);
  };
  if (ids.n() > 0 || !how.waits) {
    Status filled = RunOnDevice<Kernels>(
        kOp, state.device, [&] { return FillOnCpu(ids, ctx, state); },
        [&](const Kernels& kernels) {
          return kernels.make_plan(ids, ctx, state, [&] {
            if (can_be_good.ok()) call_meanwhile();
          });
        });
    if (!filled.ok()) return filled;
  }
  if (state.ascending) call_meanwhile();
  return plan;
}

SegmentPlan::SegmentPlan(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
SegmentPlan::SegmentPlan(SegmentPlan&&) noexcept = default;
SegmentPlan& SegmentPlan::operator=(SegmentPlan&&) noexcept = default;
SegmentPlan::~SegmentPlan() = default;

int64_t SegmentPlan::num_ids() const noexcept { return state_->num_ids; }
int64_t SegmentPlan::num_unique() const noexcept {
  if (!state_->waits) return -1;
  const Result<int64_t> count = state_->num_unique();
  return count.ok() ? *count : -1;
}
TensorView SegmentPlan::report() const noexcept {
  return {state_->report.data(), DType::kUInt64, Shape{state_->waits ? 0 : kReportWords}, state_->device};
}
SegmentPlan::Sizes SegmentPlan::sizes() const noexcept { return state_->sizes; }
bool SegmentPlan::ascending() const noexcept { return state_->ascending; }

}  // namespace raggrad
