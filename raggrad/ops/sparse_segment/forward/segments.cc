// Rows pooled by segments that come in any order: checks, the backend for host memory, and the choice of the backend.
// In host memory positions are ordered first (segment_order.h), and the forward of SparseSegment*WithNumSegments reads
// the rows where they lie.
#include <numeric>

#include "raggrad/core/error_text.h"
#include "raggrad/core/operands.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/bags/bags.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/segment_order.h"
#include "raggrad/ops/sparse_segment/weights/weights.h"

namespace raggrad {
namespace sparse_segment {
namespace {

Status CheckSegments(std::string_view op, const Segments& segments, int64_t n,
                     std::string_view one_for_every) noexcept {
  if (Status s = CheckVector(op, "segment_ids", segments.ids); !s.ok()) return s;
  if (segments.ids.dim(0) != n) {
    return InvalidArgument(op, "[segment_ids: expected one for every ", one_for_every, ", which are ", n, ", got ",
                           segments.ids.dim(0), "]");
  }
  if (n > UINT32_MAX) return InvalidArgument(op, "[segment_ids: expected less than 2^32, got ", n, "]");
  if (segments.count < 0 || segments.count > INT32_MAX) {
    return InvalidArgument(op, "[num_segments: expected 0 to ", INT32_MAX, ", got ", segments.count, "]");
  }
  return {};
}

// `indices` is null if every row has a segment.
Result<SegmentsProblem> Check(const SegmentPooling& pooling, const TensorView& data, const TensorView* indices,
                              const Segments& segments) noexcept {
  const std::string_view op = ByCombiner(pooling.combiner, "SegmentSum", "SegmentMean", "SegmentSqrtN");
  if (Status s = CheckDataType(op, pooling.combiner, data.dtype); !s.ok()) return s;
  if (Status s = CheckDType(op, "segment_ids", segments.ids.dtype, IndexTypes{}); !s.ok()) return s;
  if (Status s = CheckOperands(op, {{"data", data}, {"segment_ids", segments.ids}}); !s.ok()) return s;
  if (data.rank() == 0) return InvalidArgument(op, "[data: expected at least rank 1, got a scalar]");
  if (indices != nullptr) {
    if (Status s = CheckDType(op, "indices", indices->dtype, IndexTypes{}); !s.ok()) return s;
    if (Status s = CheckOperands(op, {{"data", data}, {"indices", *indices}}); !s.ok()) return s;
    if (Status s = CheckVector(op, "indices", *indices); !s.ok()) return s;
  }
  const int64_t n = indices != nullptr ? indices->dim(0) : data.dim(0);
  if (Status s = CheckSegments(op, segments, n, indices != nullptr ? "index" : "row of data"); !s.ok()) return s;
  const SegmentWeights* const weights = WeightsOf(pooling);
  if (Status s = CheckWeights(op, weights, n, {"data", data}); !s.ok()) return s;
  const TensorView rows = {nullptr, DType::kInt64, Shape{n}, data.device};
  return SegmentsProblem{.forward = {.op = op,
                                     .combiner = pooling.combiner,
                                     .data = data,
                                     .indices = indices != nullptr ? *indices : rows,
                                     .segment_ids = segments.ids,
                                     .num_segments = segments.count,
                                     .weights = weights},
                         .out_of_range = segments.out_of_range,
                         .ascending = segments.ascending};
}

Result<Tensor> Run(const Result<SegmentsProblem>& problem, const Context& ctx) noexcept {
  if (!problem.ok()) return problem.status();
  return cuda::RunOnDevice<on_cuda::Kernels>(
      problem->forward.op, problem->forward.data.device, [&] { return on_cpu::PoolSegments(*problem, ctx); },
      [&](const on_cuda::Kernels& kernels) { return kernels.pool_segments(*problem, ctx); });
}

}  // namespace

namespace on_cpu {
namespace {

// Rows whose segments are in order as they come.
Result<Tensor> PoolRows(ForwardProblem forward, const Context& ctx) noexcept {
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

Result<Tensor> PoolInOrder(ForwardProblem forward, const SegmentOrder& order, const Context& ctx) noexcept {
  const TensorView& positions = order.positions.view();
  forward.segment_ids = order.segment_ids.view();
  if (forward.indices.data == nullptr) {
    forward.indices = positions;
    return on_cpu::Forward(forward, ctx);
  }
  const Result<Tensor> indices = TakeAt(forward.indices, positions, ctx);
  if (!indices.ok()) return indices.status();
  forward.indices = indices->view();
  if (forward.weights == nullptr) return on_cpu::Forward(forward, ctx);
  const Result<Tensor> values = TakeAt(forward.weights->values, positions, ctx);
  if (!values.ok()) return values.status();
  const SegmentWeights weights = {values->view(), forward.weights->divisor};
  forward.weights = &weights;
  return on_cpu::Forward(forward, ctx);
}

}  // namespace

Result<Tensor> PoolSegments(const SegmentsProblem& problem, const Context& ctx) noexcept {
  const ForwardProblem& forward = problem.forward;
  const auto order = OrderBySegment(forward.segment_ids, *forward.num_segments, problem.out_of_range, ctx);
  if (!order.ok()) return WithoutOperator(order.status());
  if (!order->has_value() && !problem.has_indices()) return PoolRows(forward, ctx);
  Result<Tensor> pooled = order->has_value() ? PoolInOrder(forward, **order, ctx) : on_cpu::Forward(forward, ctx);
  if (pooled.status().code() != Code::kInvalidArgument || !problem.has_indices()) return pooled;
  // The forward names a position among ordered ids.
  Status bad = CheckIndices(forward.indices, problem.segments(), forward.data.dim(0));
  if (!bad.ok()) return bad;
  return pooled;
}

}  // namespace on_cpu
}  // namespace sparse_segment

Result<Tensor> PoolSegments(SegmentCombiner combiner, const TensorView& data, const Segments& segments,
                            const Context& ctx) noexcept {
  return sparse_segment::Run(sparse_segment::Check(combiner, data, nullptr, segments), ctx);
}

Result<Tensor> PoolSegments(const SegmentPooling& pooling, const TensorView& data, const TensorView& indices,
                            const Segments& segments, const Context& ctx) noexcept {
  return sparse_segment::Run(sparse_segment::Check(pooling, data, &indices, segments), ctx);
}

}  // namespace raggrad
