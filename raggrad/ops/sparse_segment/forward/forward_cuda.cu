// Host side of the GPU backend of the forwards. One kernel checks all ids, and the host reads its findings and the
// number of segments; a plan makes both unnecessary. A second kernel finds where segments begin, a third pools them.
#include "raggrad/ops/sparse_segment/forward/check_ids_cuda.cuh"
#include "raggrad/ops/sparse_segment/forward/forward_checks.h"
#include "raggrad/ops/sparse_segment/forward/queue_pool.cuh"

namespace raggrad::sparse_segment::on_cuda {
namespace {

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

}  // namespace raggrad::sparse_segment::on_cuda
