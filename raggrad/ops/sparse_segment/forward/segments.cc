// Rows pooled by segments that come in any order: checks, and the choice of the backend. In host memory positions are
// ordered first (segment_order.h), and the forward of SparseSegment*WithNumSegments reads the rows where they lie.
#include <numeric>

#include "raggrad/core/error_text.h"
#include "raggrad/core/operands.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/bags/bags.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/segment_order.h"

namespace raggrad {
namespace sparse_segment {
namespace {

Result<SegmentsProblem> Check(SegmentCombiner combiner, const TensorView& data, const Segments& segments) noexcept {
  const std::string_view op = ByCombiner(combiner, "SegmentSum", "SegmentMean", "SegmentSqrtN");
  if (Status s = CheckDataType(op, combiner, data.dtype); !s.ok()) return s;
  if (Status s = CheckDType(op, "segment_ids", segments.ids.dtype, IndexTypes{}); !s.ok()) return s;
  if (Status s = CheckOperands(op, {{"data", data}, {"segment_ids", segments.ids}}); !s.ok()) return s;
  if (Status s = CheckVector(op, "segment_ids", segments.ids); !s.ok()) return s;
  if (data.rank() == 0) return InvalidArgument(op, "[data: expected at least rank 1, got a scalar]");
  const int64_t n = data.dim(0);
  if (segments.ids.dim(0) != n) {
    return InvalidArgument(op, "[segment_ids: expected one for every row of data, which are ", n, ", got ",
                           segments.ids.dim(0), "]");
  }
  if (n > UINT32_MAX) return InvalidArgument(op, "[data: expected less than 2^32 rows, got ", n, "]");
  if (segments.count < 0 || segments.count > INT32_MAX) {
    return InvalidArgument(op, "[num_segments: expected 0 to ", INT32_MAX, ", got ", segments.count, "]");
  }
  const TensorView places = {nullptr, DType::kInt64, Shape{n}, data.device};
  return SegmentsProblem{.forward = {.op = op,
                                     .combiner = combiner,
                                     .data = data,
                                     .indices = places,
                                     .segment_ids = segments.ids,
                                     .num_segments = segments.count},
                         .out_of_range = segments.out_of_range,
                         .ascending = segments.ascending};
}

}  // namespace

namespace on_cpu {

Result<Tensor> PoolSegments(const SegmentsProblem& problem, const Context& ctx) noexcept {
  ForwardProblem forward = problem.forward;
  auto order = OrderBySegment(forward.segment_ids, *forward.num_segments, problem.out_of_range, ctx);
  if (!order.ok()) return order.status();
  if (order->has_value()) {
    forward.indices = (*order)->positions.view();
    forward.segment_ids = (*order)->segment_ids.view();
    return on_cpu::Forward(forward, ctx);
  }
  if (forward.n() > INT32_MAX) {
    auto positions = Scratch<int64_t>::Make(ctx, forward.n());
    if (!positions.ok()) return positions.status();
    std::iota(positions->data(), positions->data() + forward.n(), int64_t{0});
    forward.indices = {positions->data(), DType::kInt64, Shape{forward.n()}, Device::Cpu()};
    return on_cpu::Forward(forward, ctx);
  }
  const auto places = Places(Device::Cpu(), forward.n(), ctx);
  if (!places.ok()) return places.status();
  forward.indices = {places->data(), DType::kInt32, Shape{forward.n()}, Device::Cpu()};
  return on_cpu::Forward(forward, ctx);
}

}  // namespace on_cpu
}  // namespace sparse_segment

Result<Tensor> PoolSegments(SegmentCombiner combiner, const TensorView& data, const Segments& segments,
                            const Context& ctx) noexcept {
  using namespace sparse_segment;
  const Result<SegmentsProblem> problem = Check(combiner, data, segments);
  if (!problem.ok()) return problem.status();
  return cuda::RunOnDevice<on_cuda::Kernels>(
      problem->forward.op, data.device, [&] { return on_cpu::PoolSegments(*problem, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.pool_segments(*problem, ctx); });
}

}  // namespace raggrad
