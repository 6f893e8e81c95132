// Host side of the GPU backend of the gradient: makes the plan, allocates outputs, queues the sums.
#include <optional>

#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_segment/grad/pad_rows.cuh"
#include "raggrad/ops/sparse_segment/grad/sum_job.cuh"
#include "raggrad/ops/sparse_segment/plan/plan_cuda.cuh"
#include "raggrad/ops/sparse_segment/plan/plan_state.h"
#include "raggrad/ops/sparse_segment/update/apply_coalesced.cuh"
#include "raggrad/ops/sparse_segment/update/rowwise_adagrad.h"
#include "raggrad/ops/sparse_segment/weights/weights_cuda.cuh"

namespace raggrad::sparse_segment::on_cuda {
namespace {

using cuda::AllocateOutput;

// A call without a plan has to make one and to wait for its num_unique, so it cannot be captured.
Result<Call> BeginCall(const GradProblem& p, const Context& ctx) noexcept {
  if (p.plan != nullptr) return Call::Begin(ctx);
  const Result<UncapturedCall> call = UncapturedCall::Begin(ctx);
  if (!call.ok()) return call.status();
  return Call(*call);
}

PlanParts PartsFor(const GradProblem& p) noexcept {
  return {.counts = p.divides_by_count(), .positions = p.is_weighted()};
}

// Whether the order of segment ids matters, in which weights are summed.
bool DividesByWeights(const GradProblem& p) noexcept {
  return p.is_weighted() && p.is_scaled() && !p.divides_by_count();
}

// Sums that lack only a sink. All else that they need is queued.
template <class T>
struct PreparedSums {
  SumJob<T> job;
  Accumulation accumulation;
  Scratch<SumType<T>> factors;
  Scratch<char> memory;
};

// Queues everything that sums need besides the plan. `order` and `unfinished` are those of QueueFactors.
template <class T>
Result<PreparedSums<T>> Prepare(const Call& call, const GradProblem& p, const Plan& plan, SegmentTrend order,
                                Plan* unfinished = nullptr) noexcept {
  if (Status s = CheckFitsGpu(p.ids, /*needs_segments=*/p.width > 0); !s.ok()) return s;
  Result<Scratch<SumType<T>>> factors = QueueFactors<SumType<T>>(call, p, plan, order, unfinished);
  if (!factors.ok()) return factors.status();
  PreparedSums<T> sums = {};
  sums.factors = *std::move(factors);
  sums.accumulation = p.width > 0 ? call.ctx.accumulation.value_or(Accumulation::kFast) : Accumulation::kFast;
  sums.job.grad = p.grad.As<T>();
  sums.job.width = p.width;
  sums.job.contributions = plan.contributions.data();
  sums.job.n = p.ids.n();
  sums.job.unique_before = plan.unique_before;
  sums.job.counts = p.divides_by_count() ? plan.counts : nullptr;
  sums.job.combiner = p.combiner;
  sums.job.factors = sums.factors.data();
  Result<Scratch<char>> memory =
      PrepareSums(call, sums.job, sums.accumulation, p.ids.num_segments, /*read_early=*/p.plan == nullptr);
  if (!memory.ok()) return memory.status();
  sums.memory = *std::move(memory);
  return Result<PreparedSums<T>>(std::move(sums));  // `return sums` would copy with nvcc 13.0
}

template <bool kUpdate = false, class T>
Status RunSums(const Call& call, PreparedSums<T>& sums, const RowSink<T>& sink) noexcept {
  sums.job.sink = sink;
  if (sums.accumulation == Accumulation::kReproducible) return SumRowsReproducibly<T, kUpdate>(call, sums.job);
  return SumRows<T, kUpdate>(call, sums.job, sums.accumulation);
}

// Sums the rows of a problem into the sink that make_sink(num_unique) returns, where num_unique() is the number of
// unique rows. Without a plan it is made now, and the host waits for that number. Meanwhile the GPU runs what the sums
// need besides. With a plan only num_unique() waits, if the plan is not made yet.
template <class T, bool kUpdate = false, class MakeSink>
Status PlanAndSum(const Call& any_call, const GradProblem& p, const MakeSink& make_sink) noexcept {
  const auto sum = [&](Result<PreparedSums<T>>& sums, const auto& num_unique) -> Status {
    if (!sums.ok()) return sums.status();
    const Result<RowSink<T>> sink = make_sink(num_unique);
    return sink.ok() ? RunSums<kUpdate>(any_call, *sums, *sink) : sink.status();
  };
  if (p.plan != nullptr) {
    const Plan& plan = p.plan->device_sorted;
    Result<PreparedSums<T>> sums = Prepare<T>(any_call, p, plan, plan.order);
    return sum(sums, [&] { return p.plan->num_unique(); });
  }
  const Result<UncapturedCall> call = UncapturedCall::From(any_call);
  if (!call.ok()) return call.status();
  const Result<ReportTo> report = ReportTo::ThisThread();
  if (!report.ok()) return report.status();
  Result<Plan> plan = QueuePlan(*call, p.ids, PartsFor(p), {}, *report);
  if (!plan.ok()) return plan.status();
  // Segment ids mostly ascend. Without segments every segment id is bad, and bad ids cannot be replaced by segment 0.
  Result<PreparedSums<T>> sums = p.ids.num_segments > 0 ? Prepare<T>(*call, p, *plan, SegmentTrend::kAscending, &*plan)
                                                        : Result<PreparedSums<T>>(PreparedSums<T>{});
  const Result<Report> read = report->Await(*call, p.ids);  // also after an error: the report may still be written
  if (!read.ok()) return read.status();
  if (sums.ok() && DividesByWeights(p) && OrderIn(*read) == SegmentTrend::kDescending) {
    sums = Prepare<T>(*call, p, *plan, SegmentTrend::kDescending);
  }
  return sum(sums, [&] { return Result<int64_t>(static_cast<int64_t>(read->count)); });
}

// The shape of an output of that many rows.
Shape RowsShape(const GradProblem& p, int64_t rows) noexcept { return Shape::WithDim0(rows, p.grad.shape.tail()); }

// Tensors for unique rows, one after the other, and for the table rows they belong to.
Result<SparseSegmentGradV2Output> AllocateRows(const Call& call, const GradProblem& p, int64_t num_unique) noexcept {
  Result<Tensor> output = AllocateOutput(call, 0, p.grad.dtype, RowsShape(p, num_unique));
  if (!output.ok()) return output.status();
  Result<Tensor> unique_rows = AllocateOutput(call, 1, p.index_dtype, Shape{num_unique});
  if (!unique_rows.ok()) return unique_rows.status();
  return SparseSegmentGradV2Output{*std::move(output), *std::move(unique_rows)};
}

template <class T>
RowSink<T> SinkOf(Tensor& output, Tensor& unique_rows) noexcept {
  RowSink<T> sink = {};
  sink.output = output.As<T>();
  sink.max_rows = output.shape()[0];
  sink.unique_rows = unique_rows.data();
  sink.unique_is_wide = unique_rows.dtype() == DType::kInt64;
  return sink;
}

// Queues plan and sums into a sink that may have room for fewer or more rows than there are. `order` is that of segment
// ids, or what it is assumed to be.
template <class T>
Status QueueGradV2(const Call& call, const GradProblem& p, const RowSink<T>& sink, const ReportTo& to,
                   SegmentTrend order) noexcept {
  Result<Plan> plan = QueuePlan(call, p.ids, PartsFor(p), {}, to);
  if (!plan.ok()) return plan.status();
  // Without segments every segment id is bad, and bad ids cannot be replaced by segment 0.
  if (p.ids.num_segments == 0) return {};
  Result<PreparedSums<T>> sums = Prepare<T>(call, p, *plan, order, &*plan);
  return sums.ok() ? RunSums(call, *sums, sink) : sums.status();
}

template <class T>
Result<SparseSegmentGradV2PaddedOutput> GradV2Padded(const Call& call, const GradProblem& p, PaddedForm form,
                                                     int64_t max_unique) noexcept {
  Result<SparseSegmentGradV2Output> rows = AllocateRows(call, p, max_unique);
  if (!rows.ok()) return rows.status();
  Result<Tensor> report = AllocateOutput(call, 2, DType::kUInt64, Shape{kReportWords});
  if (!report.ok()) return report.status();
  const RowSink<T> sink = SinkOf<T>(rows->output, rows->sorted_unique_indices);
  const ReportTo to = {report->As<PaddedReport>(), /*token=*/0, form, max_unique};
  const bool no_rows = p.ids.table_rows == 0 && p.ids.left_out == LeftOut::kNone;  // ids that are kept are then faults
  const Status queued = p.ids.n() == 0 || no_rows ? QueueEmptyReport(call, p.ids, to)
                                                  : QueueGradV2(call, p, sink, to, SegmentTrend::kUnknown);
  if (!queued.ok()) return queued;
  const int64_t width = Shape::Product(p.grad.shape.tail()).value_or(0);  // p.width is 0 without a table
  if (Status s = PadRows(call, sink, width, p.ids.table_rows, to.report); !s.ok()) return s;
  return SparseSegmentGradV2PaddedOutput{std::move(rows->output), std::move(rows->sorted_unique_indices),
                                         *std::move(report)};
}

// The most unique rows that there can be.
int64_t MaxUnique(const GradProblem& p) noexcept { return std::min(p.ids.n(), p.ids.table_rows); }

// Whether the output may get memory for MaxUnique rows, so that the sums need not wait for num_unique. The output keeps
// all of that memory, so it has to be little.
bool HasRoomForAll(const Call& call, const GradProblem& p) noexcept {
  const int64_t max_values = cuda::kTuning.grad_max_bytes_before_count / static_cast<int64_t>(DTypeSize(p.grad.dtype));
  return call.takes_fewer_rows && p.plan == nullptr && MaxUnique(p) <= max_values / std::max<int64_t>(p.width, 1);
}

// The first num_unique rows of a tensor, in its memory.
Result<Tensor> FirstRows(const Call& call, Tensor tensor, int64_t num_unique) noexcept {
  Shape shape = Shape::WithDim0(num_unique, tensor.shape().tail());
  if (!shape.valid()) return Status(Code::kResourceExhausted, "no memory for a shape");
  const DType dtype = tensor.dtype();
  const size_t bytes = tensor.bytes();
  return Tensor(&call.device_memory(), tensor.release(), bytes, dtype, std::move(shape), call.device());
}

template <class T>
Result<SparseSegmentGradV2Output> GradV2OnceCounted(const Call& call, const GradProblem& p) noexcept {
  std::optional<Result<SparseSegmentGradV2Output>> rows;
  const Status summed = PlanAndSum<T>(call, p, [&](const auto& num_unique) -> Result<RowSink<T>> {
    const Result<int64_t> count = num_unique();
    if (!count.ok()) return count.status();
    rows = AllocateRows(call, p, *count);
    if (!rows->ok()) return rows->status();
    return SinkOf<T>((*rows)->output, (*rows)->sorted_unique_indices);
  });
  if (!summed.ok()) return summed;
  return *std::move(rows);
}

template <class T>
Result<SparseSegmentGradV2Output> GradV2WithRoomForAll(const Call& any_call, const GradProblem& p) noexcept {
  const Result<UncapturedCall> uncaptured = UncapturedCall::From(any_call);
  if (!uncaptured.ok()) return uncaptured.status();
  const UncapturedCall& call = *uncaptured;
  const Result<ReportTo> report = ReportTo::ThisThread();
  if (!report.ok()) return report.status();
  Result<SparseSegmentGradV2Output> rows = AllocateRows(call, p, MaxUnique(p));
  if (!rows.ok()) return rows.status();
  const RowSink<T> sink = SinkOf<T>(rows->output, rows->sorted_unique_indices);
  const Status queued = QueueGradV2(call, p, sink, *report, SegmentTrend::kAscending);
  const Result<Report> read = report->Await(call, p.ids);  // also after an error: the report may still be written
  if (!queued.ok()) return queued;
  if (!read.ok()) return read.status();
  if (DividesByWeights(p) && read->descending != 0) return GradV2OnceCounted<T>(call, p);
  const auto num_unique = static_cast<int64_t>(read->count);
  Result<Tensor> output = FirstRows(call, std::move(rows->output), num_unique);
  if (!output.ok()) return output.status();
  Result<Tensor> unique_rows = FirstRows(call, std::move(rows->sorted_unique_indices), num_unique);
  if (!unique_rows.ok()) return unique_rows.status();
  return SparseSegmentGradV2Output{*std::move(output), *std::move(unique_rows)};
}

// The report on the ids of a plan that was made without waiting; null for others.
const PaddedReport* ReportOf(const GradProblem& p) noexcept {
  return p.plan != nullptr ? p.plan->report.data() : nullptr;
}

// A sink that feeds rows to the optimizer.
template <class T>
RowSink<T> SinkOf(const UpdateProblem& update, const GradProblem& p) noexcept {
  RowSink<T> sink = UpdateSink<T>(update, p.width);
  sink.report = ReportOf(p);
  return sink;
}

// The rows of GradV2, in memory for as many as there can be if their number is not known.
Result<SparseSegmentGradV2Output> RowsToUpdate(const GradProblem& p, const Context& ctx) noexcept {
  if (ReportOf(p) == nullptr) return on_cuda::GradV2(p, ctx);
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  Result<SparseSegmentGradV2Output> rows = AllocateRows(*call, p, MaxUnique(p));
  if (!rows.ok()) return rows.status();
  const Status summed = Visit(FloatTypes{}, p.grad.dtype, [&]<class T>() {
    return PlanAndSum<T>(*call, p, [&](const auto&) -> Result<RowSink<T>> {
      return SinkOf<T>(rows->output, rows->sorted_unique_indices);
    });
  });
  if (!summed.ok()) return summed;
  return rows;
}

}  // namespace

Result<SparseSegmentGradV2Output> GradV2(const GradProblem& p, const Context& ctx) noexcept {
  const Result<Call> call = BeginCall(p, ctx);
  if (!call.ok()) return call.status();
  if (p.ids.n() == 0 || p.ids.table_rows == 0) return AllocateRows(*call, p, 0);
  const bool room_for_all = HasRoomForAll(*call, p);
  return Visit(FloatTypes{}, p.grad.dtype, [&]<class T>() {
    return room_for_all ? GradV2WithRoomForAll<T>(*call, p) : GradV2OnceCounted<T>(*call, p);
  });
}

Result<SparseSegmentGradV2PaddedOutput> GradV2Padded(const GradProblem& p, PaddedForm form, int64_t max_unique,
                                                     const Context& ctx) noexcept {
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  return Visit(FloatTypes{}, p.grad.dtype, [&]<class T>() { return GradV2Padded<T>(*call, p, form, max_unique); });
}

Result<Tensor> Grad(const GradProblem& p, const Context& ctx) noexcept {
  const Result<Call> call = BeginCall(p, ctx);
  if (!call.ok()) return call.status();
  // Allocated before the ids are checked, as in TensorFlow: a too large output is reported before a bad id.
  Result<Tensor> output = AllocateOutput(*call, 0, p.grad.dtype, RowsShape(p, p.ids.table_rows));
  if (!output.ok()) return output.status();
  if (Status s = call->Fill(output->data(), 0, output->bytes()); !s.ok()) return s;
  if (p.ids.n() == 0 || p.ids.table_rows == 0) return output;
  const Status summed = Visit(FloatTypes{}, p.grad.dtype, [&]<class T>() {
    return PlanAndSum<T>(*call, p, [&](const auto&) -> Result<RowSink<T>> {
      RowSink<T> sink = {};
      sink.output = output->As<T>();
      sink.dense = true;
      sink.max_rows = p.ids.table_rows;
      return sink;
    });
  });
  if (!summed.ok()) return summed;
  return output;
}

Status GradApply(const GradProblem& p, const UpdateProblem& update, const Context& ctx) noexcept {
  if (p.ids.n() == 0 || p.ids.table_rows == 0 || p.width == 0) return {};
  if (std::holds_alternative<RowwiseAdagrad>(update.update)) {
    const Result<SparseSegmentGradV2Output> rows = RowsToUpdate(p, ctx);
    if (!rows.ok()) return rows.status();
    return ApplyRowwiseAdagrad(*rows, update, p.width, ReportOf(p), ctx);
  }
  if (p.coalesced) return ApplyCoalesced(p, update, ctx);
  const Result<Call> call = BeginCall(p, ctx);
  if (!call.ok()) return call.status();
  return Visit(FloatTypes{}, p.grad.dtype, [&]<class T>() {
    return PlanAndSum<T, true>(*call, p, [&](const auto&) -> Result<RowSink<T>> { return SinkOf<T>(update, p); });
  });
}

extern "C" [[gnu::visibility("default")]] const Kernels raggrad_cuda_sparse_segment = {
    &GradV2, &GradV2Padded, &Grad, &GradApply, &Forward, &PoolSegments, &WeightsGrad, &MakePlan, &FirstDifference};

}  // namespace raggrad::sparse_segment::on_cuda
