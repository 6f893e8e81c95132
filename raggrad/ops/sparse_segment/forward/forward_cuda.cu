// Host side of the GPU backend of the forwards. One kernel checks all ids, and the host reads its findings and the
// number of segments; a plan makes both unnecessary. A second kernel finds where segments begin, a third pools them.
#include "raggrad/ops/sparse_segment/forward/check_ids_cuda.cuh"
#include "raggrad/ops/sparse_segment/forward/forward_checks.h"
#include "raggrad/ops/sparse_segment/forward/queue_pool.cuh"
#include "raggrad/ops/sparse_segment/segment_order.h"

namespace raggrad::sparse_segment::on_cuda {
namespace {

Result<Tensor> AllocateRows(const Call& call, const ForwardProblem& p, int64_t num_segments) noexcept {
  const Result<Shape> shape = OutputShape(p, num_segments);
  if (!shape.ok()) return shape.status();
  return cuda::AllocateOutput(call, 0, p.data.dtype, *shape);
}

// For ids that are known to be valid.
Status PoolInto(const Call& call, const ForwardProblem& p, int64_t num_segments, Tensor& output) noexcept {
  if (output.bytes() == 0) return {};
  if (p.n() == 0) return call.Fill(output.data(), 0, output.bytes());
  const Result<Scratch<int64_t>> found =
      p.starts == nullptr ? FindStarts(call, Ids(p.segment_ids), p.n(), num_segments) : Scratch<int64_t>();
  if (!found.ok()) return found.status();
  const int64_t* const starts = p.starts == nullptr ? found->data() : p.starts;
  return QueuePool(call, p, {Ids(p.indices), starts, num_segments}, output);
}

template <class Idx, class Seg>
Result<Tensor> CheckAndPool(const UncapturedCall& call, const ForwardProblem& p) noexcept {
  uint64_t found[Found::kWords] = {};
  if (p.n() > 0) {
    if (Status s = Look<Idx, Seg>(call, p, found); !s.ok()) return s;
  }
  const auto last = static_cast<Seg>(found[Found::kLast]);
  const Result<int64_t> num_segments = OutputRows<Idx>(p, last);
  if (!num_segments.ok()) return num_segments.status();
  Result<Tensor> output = AllocateRows(call, p, *num_segments);
  if (!output.ok()) return output;
  if (p.n() > 0 && (found[Found::kFault] != 0 || last >= *num_segments)) return Fault<Idx, Seg>(call, p, *num_segments);
  if (Status s = PoolInto(call, p, *num_segments, *output); !s.ok()) return s;
  return output;
}

// Segments of contributions that are sorted by segment.
struct SortedSegments {
  const Contribution* by_segment;

  __device__ int64_t operator[](int64_t i) const { return by_segment[i].row; }
};

// Pools rows once they are sorted by segment. Out of range are ids behind the last start and, if ids ascend as they
// come, before the first. A report on the ids goes to `checked`. p.n() and num_segments are positive.
Status SortAndPool(const Call& call, const SegmentsProblem& problem, const ReportTo& checked, Tensor& output) noexcept {
  const ForwardProblem& p = problem.forward;
  const int64_t num_segments = *p.num_segments;
  const bool drops = problem.out_of_range == OutOfRange::kDrop;
  if (problem.ascending && drops) return PoolInto(call, p, num_segments, output);
  const SegmentIds ids = {p.op, p.indices, p.segment_ids, p.data.dim(0), num_segments};
  if (Status s = CheckFitsGpu(ids, /*needs_segments=*/true); !s.ok()) return s;
  const LeftOut left_out = drops ? LeftOut::kBadIndices : LeftOut::kNone;
  const Result<Plan> sorted = QueueBySegment(call, ids, /*only_if=*/nullptr, left_out, checked);
  if (!sorted.ok()) return sorted.status();
  if (output.bytes() == 0) return {};
  const Contribution* const by_segment = sorted->contributions.data();
  const Result<Scratch<int64_t>> starts = FindStarts(call, SortedSegments{by_segment}, p.n(), num_segments);
  if (!starts.ok()) return starts.status();
  return QueuePool(call, p, {Ids(SegmentsOf{by_segment}), starts->data(), num_segments}, output);
}

// The CPU's error for a bad id.
Status BadSegment(const UncapturedCall& call, const ForwardProblem& p) noexcept {
  const Result<Tensor> ids = ToHost(call, p.segment_ids);
  if (!ids.ok()) return ids.status();
  const auto order = OrderBySegment(ids->view(), *p.num_segments, OutOfRange::kError);
  return order.ok() ? MakeError(Code::kInternal, p.op, ": segment_ids changed during the call") : order.status();
}

// Waits for the check of the ids, which is made before they are sorted.
Status CheckAndPoolSegments(const UncapturedCall& call, const SegmentsProblem& problem, Tensor& output) noexcept {
  const ForwardProblem& p = problem.forward;
  if (*p.num_segments == 0) return BadSegment(call, p);
  const Result<ReportTo> checked = ReportTo::ThisThread();
  if (!checked.ok()) return checked.status();
  if (Status s = SortAndPool(call, problem, *checked, output); !s.ok()) {
    // A kernel may have been queued that writes the report. Only an error of CUDA itself makes this wait fail.
    [[maybe_unused]] const Status ended = call.AwaitAll("a kernel failed");
    return s;
  }
  const Result<Report> report = checked->Await(call);
  if (!report.ok()) return report.status();
  return report->fault == Fault::kNone ? Status() : BadSegment(call, p);
}

}  // namespace

Result<Tensor> Forward(const ForwardProblem& problem, const Context& ctx) noexcept {
  if (problem.ids_checked) {
    const Result<Call> call = Call::Begin(ctx);
    if (!call.ok()) return call.status();
    Result<Tensor> output = AllocateRows(*call, problem, *problem.num_segments);
    if (!output.ok()) return output;
    if (Status s = PoolInto(*call, problem, *problem.num_segments, *output); !s.ok()) return s;
    return output;
  }
  const Result<UncapturedCall> call = UncapturedCall::Begin(ctx);
  if (!call.ok()) return call.status();
  return Visit(IndexTypes{}, problem.indices.dtype, [&]<class Idx>() {
    return Visit(IndexTypes{}, problem.segment_ids.dtype,
                 [&]<class Seg>() { return CheckAndPool<Idx, Seg>(*call, problem); });
  });
}

Result<Tensor> PoolSegments(const SegmentsProblem& problem, const Context& ctx) noexcept {
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  const bool waits = problem.out_of_range == OutOfRange::kError && problem.forward.n() > 0;
  const Result<UncapturedCall> waiting = waits ? UncapturedCall::From(*call) : UncapturedCall{*call};
  if (!waiting.ok()) return waiting.status();
  Result<Tensor> output = AllocateRows(*call, problem.forward, *problem.forward.num_segments);
  if (!output.ok()) return output;
  Status done;
  if (waits) {
    done = CheckAndPoolSegments(*waiting, problem, *output);
  } else if (problem.forward.n() == 0) {
    done = call->Fill(output->data(), 0, output->bytes());
  } else if (*problem.forward.num_segments > 0) {
    done = SortAndPool(*call, problem, /*checked=*/{}, *output);
  }
  if (!done.ok()) return done;
  return output;
}

}  // namespace raggrad::sparse_segment::on_cuda
