#include "segments.h"

#include <climits>
#include <cstring>
#include <optional>

#include "raggrad/core/error_text.h"
#include "raggrad/ops/bags/bags.h"
#include "raggrad/ops/sparse_segment/segment_order.h"

namespace raggrad::jax_door {
namespace {

SegmentCombiner CombinerOf(const Call& call) {
  const ::raggrad::Result<SegmentCombiner> combiner = CombinerByName(call.Text("combiner"));
  return combiner.ok() ? *combiner : SegmentCombiner::kSum;  // Python has checked it
}

// Ids with segments in range, and their weights. They are XLA's, or lie in scratch if some were dropped or moved.
struct Ids {
  TensorView ids;
  TensorView segment_ids;
  std::optional<TensorView> weights;

  Tensor taken_ids;
  Tensor taken_weights;
  std::optional<SegmentOrder> order;

  SegmentPooling Pooling(SegmentCombiner combiner) const {
    if (!weights) return combiner;
    return {combiner, {*weights, WeightDivisor::kCount}};
  }
};

// Arguments 1, 2 and 3 of a call, as they are.
Ids IdsOf(const Call& call, int first = 1) {
  Ids ids{.ids = call.View(first),
          .segment_ids = call.View(first + 1),
          .weights = {},
          .taken_ids = {},
          .taken_weights = {},
          .order = {}};
  if (call.num_arguments() > first + 2) ids.weights = call.View(first + 2);
  return ids;
}

Status Take(const TensorView& positions, TensorView& values, Tensor& memory, const Context& ctx) {
  ::raggrad::Result<Tensor> taken = TakeAt(values, positions, ctx);
  if (!taken.ok()) return taken.status();
  memory = *std::move(taken);
  values = memory.view();
  return {};
}

// Leaves the ids in `ids` that `order` has.
Status Apply(::raggrad::Result<std::optional<SegmentOrder>> order, Ids& ids, const Context& ctx) {
  if (!order.ok()) return order.status();
  if (!order->has_value()) return {};
  ids.order = *std::move(order);
  const TensorView& positions = ids.order->positions.view();
  if (Status s = Take(positions, ids.ids, ids.taken_ids, ctx); !s.ok()) return s;
  ids.segment_ids = ids.order->segment_ids.view();
  return ids.weights ? Take(positions, *ids.weights, ids.taken_weights, ctx) : Status();
}

// A Status of a call whose arguments `first` and `first` + 1 are ids and segment ids in host memory.
Status WithPosition(const Call& call, Status status, int64_t num_segments, int64_t table_rows, int first = 1) {
  if (status.code() != Code::kInvalidArgument) return status;
  Status bad = CheckIndices(call.View(first), {call.View(first + 1), num_segments}, table_rows);
  return bad.ok() ? status : bad;  // OK: the error was about something else
}

Status DenseGrad(Call& call, const SegmentPooling& pooling, const TensorView& indices, const TensorView& segment_ids) {
  const int64_t rows = call.Result(0).shape[0];
  if (rows > INT32_MAX) return MakeError(Code::kUnimplemented, "[table: expected less than 2^31 rows, got ", rows, "]");
  const auto dim0 = static_cast<int32_t>(rows);
  return Call::Done(
      SparseSegmentGrad(pooling, call.View(0), indices, segment_ids, TensorView::Scalar(dim0), call.context()));
}

// `operation` is SparseSegmentGradV2Padded, or drops ids by itself.
template <class Operation>
Status GradRows(Call& call, const Ids& ids, const Operation& operation) {
  const auto table_rows = static_cast<int32_t>(call.Integer("num_rows"));
  const int64_t size = call.Result(1).shape[0];
  return Call::Done(operation(ids.Pooling(CombinerOf(call)), call.View(0), ids.ids, ids.segment_ids,
                              TensorView::Scalar(table_rows), size, call.context()));
}

// Puts the elements that were kept to their places among all, and zeros to the others.
template <class Position>
void Spread(const Tensor& kept, const TensorView& positions, const MutableTensorView& out) {
  const size_t bytes = DTypeSize(out.dtype);
  const char* from = kept.As<char>();
  char* const to = static_cast<char*>(out.data);
  std::memset(to, 0, bytes * static_cast<size_t>(out.shape[0]));
  for (int64_t i = 0; i < positions.dim(0); ++i, from += bytes) {
    std::memcpy(to + static_cast<size_t>(positions.As<Position>()[i]) * bytes, from, bytes);
  }
}

}  // namespace

Status Segment(Call& call) {
  const Segments segments = {.ids = call.View(1),
                             .count = call.Result(0).shape[0],
                             .out_of_range = OutOfRange::kDrop,
                             .ascending = call.Integer("ascending") != 0};
  return Call::Done(PoolSegments(CombinerOf(call), call.View(0), segments, call.context()));
}

Status SegmentGrad(Call& call) {
  const TensorView segment_ids = call.View(1);
  const Context scratch = call.scratch_context();
  const auto kept = KeepInRange(segment_ids, call.View(0).dim(0), scratch);
  if (!kept.ok()) return kept.status();
  const SegmentCombiner combiner = CombinerOf(call);
  if (kept->has_value()) {
    return DenseGrad(call, combiner, (*kept)->positions.view(), (*kept)->segment_ids.view());
  }
  const auto places = Places(Device::Cpu(), segment_ids.dim(0), scratch);
  if (!places.ok()) return places.status();
  return DenseGrad(call, combiner, TensorView::Of(places->data(), segment_ids.shape), segment_ids);
}

Status Bag(Call& call) {
  const Ids ids = IdsOf(call);
  const Segments segments = {
      .ids = ids.segment_ids, .count = call.Result(0).shape[0], .out_of_range = OutOfRange::kDrop};
  return Call::Done(PoolSegments(ids.Pooling(CombinerOf(call)), call.View(0), ids.ids, segments, call.context()));
}

Status BagGrad(Call& call) {
  Ids ids = IdsOf(call);
  const Context scratch = call.scratch_context();
  Status kept = Apply(KeepInRange(ids.segment_ids, call.View(0).dim(0), scratch), ids, scratch);
  if (!kept.ok()) return kept;
  return WithPosition(call, DenseGrad(call, ids.Pooling(CombinerOf(call)), ids.ids, ids.segment_ids),
                      call.View(0).dim(0), call.Result(0).shape[0]);
}

Status BagGradOrdered(Call& call) {
  const Ids ids = IdsOf(call);
  return DenseGrad(call, ids.Pooling(CombinerOf(call)), ids.ids, ids.segment_ids);
}

Status BagWeightsGrad(Call& call) {
  const TensorView grad = call.View(0);
  const TensorView table = call.View(1);
  const MutableTensorView out = call.Result(0);
  Ids ids = IdsOf(call, 2);
  const Context scratch = call.scratch_context();
  Status ordered = Apply(OrderBySegment(ids.segment_ids, grad.dim(0), OutOfRange::kDrop, scratch), ids, scratch);
  if (!ordered.ok()) return ordered;
  const ::raggrad::Result<Tensor> grads = SparseSegmentWeightsGrad(
      ids.Pooling(CombinerOf(call)), grad, table, ids.ids, ids.segment_ids, ids.order ? scratch : call.context());
  if (!grads.ok()) return WithPosition(call, grads.status(), grad.dim(0), table.dim(0), 2);
  if (!ids.order) return {};
  const TensorView& positions = ids.order->positions.view();
  positions.dtype == DType::kInt32 ? Spread<int32_t>(*grads, positions, out) : Spread<int64_t>(*grads, positions, out);
  return {};
}

Status BagWeightsGradOrdered(Call& call) {
  const Ids ids = IdsOf(call, 2);
  return Call::Done(SparseSegmentWeightsGrad(ids.Pooling(CombinerOf(call)), call.View(0), call.View(1), ids.ids,
                                             ids.segment_ids, call.context()));
}

Status BagGradRows(Call& call) {
  Ids ids = IdsOf(call);
  const Context scratch = call.scratch_context();
  Status kept = Apply(KeepInRange(ids.segment_ids, call.View(0).dim(0), scratch), ids, scratch);
  if (!kept.ok()) return kept;
  const int64_t table_rows = call.Integer("num_rows");
  // The engine takes any ids for a table without rows, as TensorFlow does.
  const bool no_rows = table_rows == 0 && ids.ids.dim(0) > 0;
  Status done = no_rows ? MakeError(Code::kInvalidArgument, "an id is out of range")
                        : GradRows(call, ids, SparseSegmentGradV2Padded);
  return WithPosition(call, std::move(done), call.View(0).dim(0), table_rows);
}

Status BagGradRowsDropping(Call& call) { return GradRows(call, IdsOf(call), SparseSegmentGradV2PaddedInRange); }

}  // namespace raggrad::jax_door
