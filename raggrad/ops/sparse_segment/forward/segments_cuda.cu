// Rows pooled by segments that come in any order, on a GPU: the sort of a plan brings them into order.
#include "raggrad/ops/sparse_segment/forward/check_ids_cuda.cuh"
#include "raggrad/ops/sparse_segment/forward/queue_pool.cuh"
#include "raggrad/ops/sparse_segment/segment_order.h"

namespace raggrad::sparse_segment::on_cuda {
namespace {

// Segments of contributions that are sorted by segment.
struct SortedSegments {
  const Contribution* by_segment;

  __device__ int64_t operator[](int64_t i) const { return by_segment[i].row; }
};

// out[i] = values[positions[i]]. A thread for each i.
template <class W>
__global__ void TakeKernel(const W* values, const uint32_t* positions, int64_t n, W* out) {
  const int64_t i = cuda::GlobalThread();
  if (i < n) out[i] = values[positions[i]];
}

// The weights of ids at these positions.
Result<Scratch<char>> QueueTake(const Call& call, const TensorView& values, const uint32_t* positions) noexcept {
  constexpr int kThreads = cuda::kTuning.item_threads_per_block;
  const int64_t n = values.dim(0), bytes = n * static_cast<int64_t>(DTypeSize(values.dtype));
  Result<Scratch<char>> memory = Scratch<char>::Make(call.device_memory(), bytes);
  if (!memory.ok()) return memory;
  const Status queued = Visit(FloatTypes{}, values.dtype, [&]<class W>() {
    return call.Launch(TakeKernel<W>, cuda::Blocks(n, kThreads), kThreads, values.As<W>(), positions, n,
                       reinterpret_cast<W*>(memory->data()));
  });
  if (!queued.ok()) return queued;
  return memory;
}

// Pools rows once they are sorted by segment. Out of range are ids behind the last start and, if ids ascend as they
// come, before the first. A report on the ids goes to `checked`. p.n() and num_segments are positive.
Status SortAndPool(const Call& call, const SegmentsProblem& problem, const ReportTo& checked, Tensor& output) noexcept {
  const ForwardProblem& p = problem.forward;
  const int64_t num_segments = *p.num_segments;
  const bool drops = problem.out_of_range == OutOfRange::kDrop;
  if (problem.ascending && drops && !problem.has_indices()) return PoolInto(call, p, num_segments, output);
  // Segments are the rows that are sorted. What they have in place of a segment is an index, or a position.
  SegmentIds ids = {p.op, p.segment_ids, p.indices, num_segments, problem.has_indices() ? p.data.dim(0) : p.n()};
  ids.left_out = drops ? LeftOut::kBadIndices : LeftOut::kNone;
  const Result<Plan> sorted = QueueByRow(call, ids, /*positions=*/p.weights != nullptr, checked);
  if (!sorted.ok()) return sorted.status();
  if (output.bytes() == 0) return {};
  const Contribution* const by_segment = sorted->contributions.data();
  const Result<Scratch<int64_t>> starts = FindStarts(call, SortedSegments{by_segment}, p.n(), num_segments);
  if (!starts.ok()) return starts.status();
  const PoolIds in_order = {Ids(SegmentsOf{by_segment}), starts->data(), num_segments};
  if (p.weights == nullptr) return QueuePool(call, p, in_order, output);
  const Result<Scratch<char>> values = QueueTake(call, p.weights->values, sorted->positions.data());
  if (!values.ok()) return values.status();
  SegmentWeights weights = *p.weights;
  weights.values.data = values->data();
  ForwardProblem weighted = p;
  weighted.weights = &weights;
  return QueuePool(call, weighted, in_order, output);
}

// The CPU's error for the first bad id; OK if there is none.
Status CheckOnHost(const UncapturedCall& call, const SegmentsProblem& problem) noexcept {
  const ForwardProblem& p = problem.forward;
  const Result<Tensor> ids = ToHost(call, p.segment_ids);
  if (!ids.ok()) return ids.status();
  const auto order = OrderBySegment(ids->view(), *p.num_segments, problem.out_of_range);
  if (!order.ok()) return WithoutOperator(order.status());
  if (problem.has_indices()) {
    const Result<Tensor> indices = ToHost(call, p.indices);
    if (!indices.ok()) return indices.status();
    Segments segments = problem.segments();
    segments.ids = ids->view();
    return CheckIndices(indices->view(), segments, p.data.dim(0));
  }
  return {};
}

// Waits for the check of the ids, which is made before they are sorted. p.n() is positive.
Status CheckAndPoolSegments(const UncapturedCall& call, const SegmentsProblem& problem, Tensor& output) noexcept {
  const ForwardProblem& p = problem.forward;
  // Bad ids become 0, but here there is no such segment or no such row. Without rows all segments are zero.
  if (*p.num_segments == 0 || (problem.has_indices() && p.data.dim(0) == 0)) {
    Status checked = CheckOnHost(call, problem);
    return checked.ok() ? call.Fill(output.data(), 0, output.bytes()) : checked;
  }
  const Result<ReportTo> checked = ReportTo::ThisThread();
  if (!checked.ok()) return checked.status();
  if (Status s = SortAndPool(call, problem, *checked, output); !s.ok()) {
    // A kernel may have been queued that writes the report. Only an error of CUDA itself makes this wait fail.
    [[maybe_unused]] const Status ended = call.AwaitAll("a kernel failed");
    return s;
  }
  const Result<Report> report = checked->Await(call);
  if (!report.ok()) return report.status();
  if (report->fault == Fault::kNone) return {};
  Status bad = CheckOnHost(call, problem);
  return bad.ok() ? MakeError(Code::kInternal, p.op, ": ids changed during the call") : bad;
}

}  // namespace

Result<Tensor> PoolSegments(const SegmentsProblem& problem, const Context& ctx) noexcept {
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  const ForwardProblem& p = problem.forward;
  const bool by_weights = p.weights != nullptr && p.weights->divisor == WeightDivisor::kWeights;
  if (by_weights && p.combiner != SegmentCombiner::kSum) {
    return MakeError(Code::kUnimplemented, p.op, ": nothing divides by weights of segments in any order on a GPU");
  }
  const bool can_fail = problem.out_of_range == OutOfRange::kError || problem.has_indices();
  const bool waits = can_fail && p.n() > 0;
  const Result<UncapturedCall> waiting = waits ? UncapturedCall::From(*call) : UncapturedCall{*call};
  if (!waiting.ok()) return waiting.status();
  Result<Tensor> output = AllocateRows(*call, p, *p.num_segments);
  if (!output.ok()) return output;
  Status done;
  if (waits) {
    done = CheckAndPoolSegments(*waiting, problem, *output);
  } else if (p.n() == 0) {
    done = call->Fill(output->data(), 0, output->bytes());
  } else if (*p.num_segments > 0) {
    done = SortAndPool(*call, problem, /*checked=*/{}, *output);
  }
  if (!done.ok()) return done;
  return output;
}

}  // namespace raggrad::sparse_segment::on_cuda
