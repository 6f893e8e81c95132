#include "raggrad/ops/sparse_segment/segment_plan.h"

#include <atomic>
#include <new>
#include <utility>

#include "raggrad/core/operands.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/first_error.h"
#include "raggrad/cuda/host_copy.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/bags/bags.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/plan/plan_state.h"
#include "raggrad/ops/sparse_segment/weights/weights.h"

namespace raggrad {
namespace {

using cpu::FirstError;
using cpu::ForEachChunk;
using cpu::ForEachChunkUntilStopped;
using cpu::SplitEvenly;
using cuda::RunOnDevice;
using sparse_segment::CheckAscending;
using sparse_segment::CheckIdOperands;
using sparse_segment::CheckRowsOfPlan;
using sparse_segment::CheckTableRows;
using sparse_segment::Contribution;
using sparse_segment::GradProblem;
using sparse_segment::KeepPositions;
using sparse_segment::MakePlan;
using sparse_segment::Plan;
using sparse_segment::SegmentIds;
using sparse_segment::UsingPlan;
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

// The first position where the ids differ from the planned ones, or n.
Result<int64_t> FirstDifference(const TensorView& ids, const TensorView& planned, Executor& executor) noexcept {
  const int64_t n = ids.dim(0);
  FirstError difference;
  const Status visited = Visit(IndexTypes{}, ids.dtype, [&]<class Id>() -> Status {
    return Visit(IndexTypes{}, planned.dtype, [&]<class Planned>() -> Status {
      const Id* got = ids.As<Id>();
      const Planned* expected = planned.As<Planned>();
      ForEachChunk(executor, SplitEvenly(executor, n, kGrain), [&](int64_t, int64_t begin, int64_t end) {
        const int64_t found = std::mismatch(got + begin, got + end, expected + begin).first - got;
        if (found < end) difference.Report(found);
      });
      return {};
    });
  });
  if (!visited.ok()) return visited;
  return difference.found() ? difference.position() : n;
}

Result<int64_t> IdAt(const TensorView& ids, int64_t i, const Context& ctx) noexcept {
  return Visit(IndexTypes{}, ids.dtype, [&]<class Id>() -> Result<int64_t> {
    const Id* const id = ids.As<Id>() + i;
    if (ids.device.is_cpu()) return int64_t{*id};
    const Result<Tensor> copy = cuda::CopyToHost(kOp, {id, ids.dtype, Shape{}, ids.device}, ctx);
    if (!copy.ok()) return copy.status();
    return int64_t{*copy->As<Id>()};
  });
}

Status CheckSameIds(std::string_view name, const TensorView& ids, const TensorView& planned,
                    const Context& ctx) noexcept {
  const Result<int64_t> first = RunOnDevice<Kernels>(
      kOp, ids.device, [&] { return FirstDifference(ids, planned, ExecutorOf(ctx)); },
      [&](const Kernels& kernels) { return kernels.first_difference(ids, planned.As<int32_t>(), ctx); });
  if (!first.ok()) return first.status();
  if (*first == ids.dim(0)) return {};
  const Result<int64_t> expected = IdAt(planned, *first, ctx);
  if (!expected.ok()) return expected.status();
  const Result<int64_t> got = IdAt(ids, *first, ctx);
  if (!got.ok()) return got.status();
  return InvalidArgument(kOp, "the plan was made from other ", name, " [", name, "[", *first, "]: expected ", *expected,
                         ", got ", *got, "]");
}

constexpr std::string_view GradName(SegmentCombiner combiner) noexcept {
  switch (combiner) {
    case SegmentCombiner::kSum:
      return "SparseSegmentSumGrad with a plan";
    case SegmentCombiner::kMean:
      return "SparseSegmentMeanGrad with a plan";
    case SegmentCombiner::kSqrtN:
      return "SparseSegmentSqrtNGrad with a plan";
  }
  return "SparseSegmentGrad with a plan";
}

}  // namespace

namespace sparse_segment {

Status CheckRowsOfPlan(std::string_view op, std::string_view name, const TensorView& view,
                       const SegmentPlan::State& plan, std::string_view what, int64_t expected) noexcept {
  if (Status s = CheckOperands(op, {{"plan", plan.indices_view()}, {name, view}}); !s.ok()) return s;
  if (view.rank() > 0 && view.dim(0) == expected) return {};
  return InvalidArgument(op, "the plan was made for another size [", name, ": expected ", expected,
                         " rows, the plan's ", what, ", got shape ", view.shape, "]");
}

Status CheckAscending(std::string_view op, const SegmentPlan::State& plan) noexcept {
  if (plan.ascending) return {};
  return InvalidArgument(op, "segment ids are not increasing [plan: expected one made from ascending segment_ids]");
}

Result<GradProblem> CheckWithPlan(std::string_view op, const SegmentPooling& pooling, const TensorView& grad,
                                  const SegmentPlan& plan) noexcept {
  if (Status s = CheckDType(op, "grad", grad.dtype, FloatTypes{}); !s.ok()) return s;
  const SegmentPlan::State& state = plan.state();
  if (Status s = CheckRowsOfPlan(op, "grad", grad, state, "segments", state.sizes.num_segments); !s.ok()) return s;
  const SegmentWeights* const weights = WeightsOf(pooling);
  if (Status s = CheckWeights(op, weights, state.num_ids, {"grad", grad}); !s.ok()) return s;
  if (weights != nullptr && !state.weighted) {
    return InvalidArgument(op, "the plan is for calls without weights [plan: expected one made with weighted = true]");
  }
  return GradProblem{
      .ids = {op, state.indices_view(), state.segment_ids_view(), state.sizes.table_rows, state.sizes.num_segments},
      .combiner = pooling.combiner,
      .grad = grad,
      .weights = weights,
      .plan = &state,
      .index_dtype = state.index_dtype};
}

}  // namespace sparse_segment

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

Status SegmentPlan::CheckMadeFrom(const TensorView& indices, const TensorView& segment_ids,
                                  const Context& ctx) const noexcept {
  if (Status s = CheckIdOperands(kOp, indices, segment_ids); !s.ok()) return s;
  if (indices.dim(0) != state_->num_ids) {
    return InvalidArgument(kOp, "the plan was made from other ids [indices: expected ", state_->num_ids,
                           " elements, got ", indices.dim(0), "]");
  }
  if (Status s = CheckOperands(kOp, {{"plan", state_->indices_view()}, {"indices", indices}}); !s.ok()) return s;
  if (Status s = CheckSameIds("indices", indices, state_->indices_view(), ctx); !s.ok()) return s;
  return CheckSameIds("segment_ids", segment_ids, state_->segment_ids_view(), ctx);
}

Result<SparseSegmentGradV2Output> SparseSegmentGradV2(const SegmentPooling& pooling, const TensorView& grad,
                                                      const SegmentPlan& plan, const Context& ctx) noexcept {
  const Result<GradProblem> problem = sparse_segment::CheckWithPlan(GradName(pooling.combiner), pooling, grad, plan);
  if (!problem.ok()) return problem.status();
  if (!plan.state().waits) {
    return InvalidArgument(problem->ids.op,
                           "the number of rows is not known yet [plan: expected one of SegmentPlan::Make]");
  }
  return UsingPlan(problem->ids.op, plan, ctx, [&] { return sparse_segment::GradV2(*problem, ctx); });
}

Result<Tensor> SparseSegmentGrad(const SegmentPooling& pooling, const TensorView& grad, const SegmentPlan& plan,
                                 const Context& ctx) noexcept {
  const Result<GradProblem> problem = sparse_segment::CheckWithPlan(GradName(pooling.combiner), pooling, grad, plan);
  if (!problem.ok()) return problem.status();
  return UsingPlan(problem->ids.op, plan, ctx, [&] { return sparse_segment::Grad(*problem, ctx); });
}

Result<Tensor> SparseSegment(const SegmentPooling& pooling, const TensorView& data, const SegmentPlan& plan,
                             const Context& ctx) noexcept {
  constexpr std::string_view op = "SparseSegment with a plan";
  Status data_type = pooling.combiner == SegmentCombiner::kSum
                         ? CheckDType(op, "data", data.dtype, sparse_segment::SumTypes{})
                         : CheckDType(op, "data", data.dtype, FloatTypes{});
  if (!data_type.ok()) return data_type;
  const SegmentPlan::State& state = plan.state();
  if (Status s = CheckRowsOfPlan(op, "data", data, state, "rows", state.sizes.table_rows); !s.ok()) return s;
  if (Status s = CheckAscending(op, state); !s.ok()) return s;
  const SegmentWeights* const weights = sparse_segment::WeightsOf(pooling);
  if (Status s = sparse_segment::CheckWeights(op, weights, state.num_ids, {"data", data}); !s.ok()) return s;
  const sparse_segment::ForwardProblem problem = {.op = op,
                                                  .combiner = pooling.combiner,
                                                  .data = data,
                                                  .indices = state.indices_view(),
                                                  .segment_ids = state.segment_ids_view(),
                                                  .num_segments = state.sizes.num_segments,
                                                  .ids_checked = true,
                                                  .weights = weights,
                                                  .starts = state.starts.data()};
  return UsingPlan(op, plan, ctx, [&] { return sparse_segment::Forward(problem, ctx); });
}

}  // namespace raggrad
