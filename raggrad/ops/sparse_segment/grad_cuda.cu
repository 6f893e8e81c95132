// Host side of the GPU backend: plan, outputs, the sums.
#include "raggrad/ops/sparse_segment/plan_cuda.cuh"
#include "raggrad/ops/sparse_segment/row_sums.cuh"
#include "raggrad/ops/sparse_segment/update_job.h"

namespace raggrad::sparse_segment::cuda {
namespace {

using ::raggrad::cuda::AllocateOutput;

bool IsScaled(const Problem& p) noexcept { return p.combiner != SegmentCombiner::kSum && p.width > 0; }

// Without a plan, one has to be made and its number of rows waited for.
Result<Call> BeginCall(const Problem& p, const Context& ctx) noexcept {
  if (p.device_plan != nullptr) return Call::Begin(ctx);
  const Result<UncapturedCall> call = UncapturedCall::Begin(ctx);
  if (!call.ok()) return call.status();
  return Call(*call);
}

// The problem's plan, or one that is made now.
class PlanOf {
 public:
  static Result<PlanOf> Make(const Call& any_call, const Problem& p) noexcept {
    PlanOf plan;
    plan.ready_ = p.device_plan;
    if (plan.ready_ != nullptr) return Result<PlanOf>(std::move(plan));  // nvcc 13.0 would copy
    const Result<UncapturedCall> call = UncapturedCall::From(any_call);
    if (!call.ok()) return call.status();
    const Result<ReportTo> report = ReportTo::ThisThread();
    if (!report.ok()) return report.status();
    Result<Plan> made = QueuePlan(*call, p, IsScaled(p), {}, *report);
    if (!made.ok()) return made.status();
    const Result<Report> read = report->Await(*call, p);
    if (!read.ok()) return read.status();
    plan.own_ = *std::move(made);
    plan.own_.num_rows = static_cast<int64_t>(read->rows);
    return Result<PlanOf>(std::move(plan));
  }
  const Plan& operator*() const noexcept { return ready_ != nullptr ? *ready_ : own_; }
  const Plan* operator->() const noexcept { return &**this; }

 private:
  const Plan* ready_ = nullptr;
  Plan own_;
};

template <class T, bool kUpdate = false>
Status RunSums(const Call& call, const Problem& p, const Plan& plan, const RowSink<T>& sink) noexcept {
  const SumJob<T> job = {.grad = p.grad.As<T>(),
                         .width = p.width,
                         .contributions = plan.contributions.data(),
                         .n = p.n(),
                         .rows_before = plan.rows_before,
                         .counts = p.combiner == SegmentCombiner::kSum ? nullptr : plan.counts,
                         .combiner = p.combiner,
                         .carries = nullptr,
                         .tails = nullptr,
                         .sink = sink};
  return SumRows<T, kUpdate>(call, job, call.ctx.accumulation == Accumulation::kSequential);
}

Shape RowsShape(const Problem& p, int64_t rows) noexcept { return Shape::WithDim0(rows, p.grad.shape.tail()); }

// Tensors for rows one after the other, and their numbers.
Result<SparseSegmentGradV2Output> AllocateRows(const Call& call, const Problem& p, int64_t rows) noexcept {
  Result<Tensor> output = AllocateOutput(call, 0, p.grad.dtype, RowsShape(p, rows));
  if (!output.ok()) return output.status();
  Result<Tensor> numbers = AllocateOutput(call, 1, p.index_dtype, Shape{rows});
  if (!numbers.ok()) return numbers.status();
  return SparseSegmentGradV2Output{*std::move(output), *std::move(numbers)};
}

template <class T>
RowSink<T> SinkOf(Tensor& output, Tensor& numbers) noexcept {
  RowSink<T> sink = {};
  sink.output = output.As<T>();
  sink.max_rows = output.shape()[0];
  sink.numbers = numbers.data();
  sink.wide_numbers = numbers.dtype() == DType::kInt64;
  return sink;
}

// A thread for each number of the output and then for each row number: what comes after the rows that there are.
template <class T>
__global__ void PadKernel(const Report* report, T* output, int64_t width, int64_t max_rows, void* numbers,
                          bool wide_numbers, int64_t dim0) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t rows = static_cast<int64_t>(report->rows);
  if (i >= rows * width && i < max_rows * width) output[i] = T{};
  if (i < rows || i >= max_rows) return;
  if (wide_numbers) {
    static_cast<int64_t*>(numbers)[i] = dim0;
  } else {
    static_cast<int32_t*>(numbers)[i] = static_cast<int32_t>(dim0);
  }
}

template <class T>
Status Pad(const Call& call, const Problem& p, const RowSink<T>& sink, const Report* report) noexcept {
  constexpr int kThreads = 256;
  const int64_t items = sink.max_rows * std::max<int64_t>(p.width, 1);
  if (items == 0) return {};
  return call.Launch(PadKernel<T>, ::raggrad::cuda::Blocks(items, kThreads), kThreads, report, sink.output, p.width,
                     sink.max_rows, sink.numbers, sink.wide_numbers, p.dim0);
}

// Queues all there is to do, with room for some number of rows.
template <class T>
Status QueueGradV2(const Call& call, const Problem& p, const RowSink<T>& sink, const ReportTo& to) noexcept {
  const Result<Plan> plan = QueuePlan(call, p, IsScaled(p), {}, to);
  if (!plan.ok()) return plan.status();
  // Without segments every segment id is bad, and there is nothing that could be summed instead.
  return p.segments() > 0 ? RunSums<T>(call, p, *plan, sink) : Status();
}

template <class T>
Result<SparseSegmentGradV2PaddedOutput> GradV2Padded(const Call& call, const Problem& p, int64_t max_unique) noexcept {
  Result<SparseSegmentGradV2Output> rows = AllocateRows(call, p, max_unique);
  if (!rows.ok()) return rows.status();
  Result<Tensor> report = AllocateOutput(call, 2, DType::kUInt64, Shape{kReportWords});
  if (!report.ok()) return report.status();
  const RowSink<T> sink = SinkOf<T>(rows->output, rows->sorted_unique_indices);
  const Status queued = p.n() == 0 || p.dim0 == 0 ? QueueEmptyReport(call, p, report->As<Report>())
                                                  : QueueGradV2(call, p, sink, {report->As<Report>(), 0});
  if (!queued.ok()) return queued;
  if (Status s = Pad(call, p, sink, report->As<Report>()); !s.ok()) return s;
  return SparseSegmentGradV2PaddedOutput{std::move(rows->output), std::move(rows->sorted_unique_indices),
                                         *std::move(report)};
}

// Rows that an output could have.
int64_t MostRows(const Problem& p) noexcept { return std::min(p.n(), p.dim0); }

// Whether an output may get memory for all of them: then the sums need not wait until their number is known, which
// saves 10 us. The output keeps that memory, so only if it is little.
bool HasRoomForAll(const Call& call, const Problem& p) noexcept {
  constexpr int64_t kMostBytes = 4 << 20;
  const int64_t most_values = kMostBytes / static_cast<int64_t>(DTypeSize(p.grad.dtype));
  return call.own_pool && p.device_plan == nullptr && MostRows(p) <= most_values / std::max<int64_t>(p.width, 1);
}

// The first rows of a tensor, in its memory.
Result<Tensor> FirstRows(const Call& call, Tensor tensor, int64_t rows) noexcept {
  Shape shape = Shape::WithDim0(rows, tensor.shape().tail());
  if (!shape.valid()) return Status(Code::kResourceExhausted, "no memory for a shape");
  const DType dtype = tensor.dtype();
  const size_t bytes = tensor.bytes();
  return Tensor(call.ctx.allocator, tensor.release(), bytes, dtype, std::move(shape), Device::kCuda);
}

template <class T>
Result<SparseSegmentGradV2Output> GradV2WithRoomForAll(const Call& any_call, const Problem& p) noexcept {
  const Result<UncapturedCall> uncaptured = UncapturedCall::From(any_call);
  if (!uncaptured.ok()) return uncaptured.status();
  const UncapturedCall& call = *uncaptured;
  const Result<ReportTo> report = ReportTo::ThisThread();
  if (!report.ok()) return report.status();
  Result<SparseSegmentGradV2Output> rows = AllocateRows(call, p, MostRows(p));
  if (!rows.ok()) return rows.status();
  const RowSink<T> sink = SinkOf<T>(rows->output, rows->sorted_unique_indices);
  const Status queued = QueueGradV2(call, p, sink, *report);
  const Result<Report> read = report->Await(call, p);  // in any case: it may be on its way
  if (!queued.ok()) return queued;
  if (!read.ok()) return read.status();
  const auto num_rows = static_cast<int64_t>(read->rows);
  Result<Tensor> output = FirstRows(call, std::move(rows->output), num_rows);
  if (!output.ok()) return output.status();
  Result<Tensor> numbers = FirstRows(call, std::move(rows->sorted_unique_indices), num_rows);
  if (!numbers.ok()) return numbers.status();
  return SparseSegmentGradV2Output{*std::move(output), *std::move(numbers)};
}

// The numbers that the update's formulas need, and where its arrays are.
template <class T>
RowSink<T> SinkOf(const UpdateProblem& update, int64_t width) noexcept {
  RowSink<T> sink = {};
  sink.rule = std::holds_alternative<Sgd>(update.rule)       ? UpdateRule::kSgd
              : std::holds_alternative<Adagrad>(update.rule) ? UpdateRule::kAdagrad
                                                             : UpdateRule::kAdam;
  sink.table_type = update.table.dtype;
  sink.update = ReadRule<SumType<T>>(update.rule);
  sink.update.table = update.table.data;
  sink.update.width = width;
  return sink;
}

}  // namespace

Result<SparseSegmentGradV2Output> GradV2(const Problem& p, const Context& ctx) noexcept {
  const Result<Call> call = BeginCall(p, ctx);
  if (!call.ok()) return call.status();
  if (p.n() == 0 || p.dim0 == 0) return AllocateRows(*call, p, 0);
  if (HasRoomForAll(*call, p)) {
    return Visit(FloatTypes{}, p.grad.dtype, [&]<class T>() { return GradV2WithRoomForAll<T>(*call, p); });
  }
  const Result<PlanOf> plan = PlanOf::Make(*call, p);
  if (!plan.ok()) return plan.status();
  Result<SparseSegmentGradV2Output> rows = AllocateRows(*call, p, (*plan)->num_rows);
  if (!rows.ok()) return rows.status();
  const Status summed = Visit(FloatTypes{}, p.grad.dtype, [&]<class T>() {
    return RunSums<T>(*call, p, **plan, SinkOf<T>(rows->output, rows->sorted_unique_indices));
  });
  if (!summed.ok()) return summed;
  return rows;
}

Result<SparseSegmentGradV2PaddedOutput> GradV2Padded(const Problem& p, int64_t max_unique,
                                                     const Context& ctx) noexcept {
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  return Visit(FloatTypes{}, p.grad.dtype, [&]<class T>() { return GradV2Padded<T>(*call, p, max_unique); });
}

Result<Tensor> Grad(const Problem& p, const Context& ctx) noexcept {
  const Result<Call> call = BeginCall(p, ctx);
  if (!call.ok()) return call.status();
  // Before the ids are looked at, as in TensorFlow: too large an output is reported before a bad id.
  Result<Tensor> output = AllocateOutput(*call, 0, p.grad.dtype, RowsShape(p, p.dim0));
  if (!output.ok()) return output.status();
  if (Status s = call->Fill(output->data(), 0, output->bytes()); !s.ok()) return s;
  if (p.n() == 0 || p.dim0 == 0) return output;
  const Result<PlanOf> plan = PlanOf::Make(*call, p);
  if (!plan.ok()) return plan.status();
  if (p.width == 0) return output;
  const Status summed = Visit(FloatTypes{}, p.grad.dtype, [&]<class T>() {
    RowSink<T> sink = {};
    sink.output = output->As<T>();
    sink.dense = true;
    sink.max_rows = p.dim0;
    return RunSums<T>(*call, p, **plan, sink);
  });
  if (!summed.ok()) return summed;
  return output;
}

Status GradApply(const Problem& p, const UpdateProblem& update, const Context& ctx) noexcept {
  if (p.n() == 0 || p.dim0 == 0 || p.width == 0) return {};
  const Result<Call> call = BeginCall(p, ctx);
  if (!call.ok()) return call.status();
  const Result<PlanOf> plan = PlanOf::Make(*call, p);
  if (!plan.ok()) return plan.status();
  return Visit(FloatTypes{}, p.grad.dtype,
               [&]<class T>() { return RunSums<T, true>(*call, p, **plan, SinkOf<T>(update, p.width)); });
}

extern "C" [[gnu::visibility("default")]] const Kernels raggrad_cuda_sparse_segment = {
    &GradV2, &GradV2Padded, &Grad, &GradApply, &Forward, &MakePlan, &FirstDifference};

}  // namespace raggrad::sparse_segment::cuda
