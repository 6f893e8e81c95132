// Workloads of segments for gpu_bench: gradients, forwards and updates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/gpu_timing.h"
#include "raggrad/ops/sparse_segment/segment_order.h"
#include "raggrad/raggrad.h"
#include "raggrad/testing/bench_data.h"

namespace raggrad::bench {

struct Measured {
  double ms;
  int64_t bytes;  // the least traffic: each input read once, each output written once
};

enum class Law { kUniform, kZipf };
struct Sizes {
  int64_t segments, ids_per_segment, width, table_rows;
  Law law;
  bool with_plan = false;
  bool weighted = false;
  std::optional<Accumulation> accumulation = {};
  double zipf = 1.05;  // exponent
};

// Ids, and a weight for each, in device memory.
template <class I>
struct SegmentIds {
  int64_t n;
  std::vector<I> ids;
  OnDevice indices, segment_ids, weights;

  SegmentIds(const Stopwatch& watch, const Sizes& sizes, Generator& random)
      : n(sizes.segments * sizes.ids_per_segment),
        ids(sizes.law == Law::kZipf ? ZipfRows<I>(random, n, sizes.table_rows, sizes.zipf)
                                    : random.UniformIds<I>(n, sizes.table_rows)),
        indices(VectorView(ids), watch.ctx()),
        segment_ids(VectorView(Segments(sizes)), watch.ctx()),
        weights(VectorView(random.Values<float>(n)), watch.ctx()) {}

  int64_t NumUnique(int64_t table_rows) const {
    std::vector<bool> used(static_cast<size_t>(table_rows));
    for (const I id : ids) used[static_cast<size_t>(id)] = true;
    return std::ranges::count(used, true);
  }
  SegmentPlan Plan(const Sizes& sizes, const Context& ctx) const {
    return Get(
        SegmentPlan::Make(indices, segment_ids, {.table_rows = sizes.table_rows, .num_segments = sizes.segments}, ctx));
  }
  SegmentPooling Pooling(const Sizes& sizes) const {
    if (!sizes.weighted) return SegmentCombiner::kMean;
    return {SegmentCombiner::kMean, {static_cast<const TensorView&>(weights)}};
  }

 private:
  static std::vector<I> Segments(const Sizes& sizes) {
    std::vector<I> segments(static_cast<size_t>(sizes.segments * sizes.ids_per_segment));
    for (size_t i = 0; i < segments.size(); ++i) {
      segments[i] = static_cast<I>(static_cast<int64_t>(i) / sizes.ids_per_segment);
    }
    return segments;
  }
};

template <class T, class I>
Measured Segment(const Stopwatch& watch, const Sizes& sizes) {
  Generator random(1);
  const SegmentIds<I> batch(watch, sizes, random);
  const auto& [n, ids, indices, segment_ids, weights] = batch;
  const std::vector<T> values = random.Values<T>(sizes.segments * sizes.width);
  const OnDevice grad(TensorView::Of(values.data(), Shape{sizes.segments, sizes.width}), watch.ctx());
  const auto table_rows = static_cast<int32_t>(sizes.table_rows);

  const int64_t num_unique = batch.NumUnique(sizes.table_rows);
  constexpr auto kValue = static_cast<int64_t>(sizeof(T)), kId = static_cast<int64_t>(sizeof(I));
  const int64_t bytes = (sizes.segments + num_unique) * sizes.width * kValue + (2 * n + num_unique) * kId +
                        (sizes.weighted ? n * static_cast<int64_t>(sizeof(float)) : 0);
  const SegmentPooling pooling = batch.Pooling(sizes);
  const Context ctx = watch.With(sizes.accumulation);
  if (sizes.with_plan) {
    const SegmentPlan plan = batch.Plan(sizes, watch.ctx());
    return {watch.Time([&](const Context&) { return SparseSegmentGradV2(pooling, grad, plan, ctx); }), bytes};
  }
  return {watch.Time([&](const Context&) {
            return SparseSegmentGradV2(pooling, grad, indices, segment_ids, TensorView::Scalar(table_rows), ctx);
          }),
          bytes};
}

// One step of Adam, straight from the gradient of a planned batch. State of every row that changes is read and written.
inline Measured AdamStep(const Stopwatch& watch, const Sizes& sizes) {
  Generator random(1);
  const SegmentIds<int32_t> batch(watch, sizes, random);
  const std::vector<float> values = random.Values<float>(sizes.segments * sizes.width);
  const OnDevice grad(TensorView::Of(values.data(), Shape{sizes.segments, sizes.width}), watch.ctx());
  const std::vector<float> zeros(static_cast<size_t>(sizes.table_rows * sizes.width));
  const TensorView empty = TensorView::Of(zeros.data(), Shape{sizes.table_rows, sizes.width});
  OnDevice table(empty, watch.ctx()), m(empty, watch.ctx()), v(empty, watch.ctx());
  const SegmentPlan plan = batch.Plan(sizes, watch.ctx());
  const Adam adam{.learning_rate = 0.01, .m = m.mutable_view(), .v = v.mutable_view()};
  const int64_t changed = 2 * 3 * batch.NumUnique(sizes.table_rows);
  return {watch.Time([&](const Context& ctx) -> Result<int> {
            const Status done =
                SparseSegmentGradApply(SegmentCombiner::kMean, grad, plan, adam, table.mutable_view(), ctx);
            if (!done.ok()) return done;
            return 0;
          }),
          (sizes.segments + changed) * sizes.width * 4 + 2 * batch.n * 4};
}

// The forward, or the gradient of its weights.
template <class T, class I>
Measured Pool(const Stopwatch& watch, const Sizes& sizes, bool weights_grad) {
  Generator random(1);
  const SegmentIds<I> batch(watch, sizes, random);
  const std::vector<T> rows = random.Values<T>(sizes.table_rows * sizes.width);
  const OnDevice data(TensorView::Of(rows.data(), Shape{sizes.table_rows, sizes.width}), watch.ctx());
  const OnDevice grad(TensorView::Of(rows.data(), Shape{sizes.segments, sizes.width}), watch.ctx());
  const SegmentPooling pooling = batch.Pooling(sizes);
  const Context ctx = watch.With(sizes.accumulation);
  const int64_t bytes = (batch.n + sizes.segments) * sizes.width * static_cast<int64_t>(sizeof(T)) +
                        batch.n * static_cast<int64_t>(2 * sizeof(I) + (sizes.weighted ? sizeof(float) : 0));
  return {watch.Time([&](const Context&) {
            return weights_grad ? SparseSegmentWeightsGrad(pooling, grad, data, batch.indices, batch.segment_ids, ctx)
                                : SparseSegment(pooling, data, batch.indices, batch.segment_ids, ctx);
          }),
          bytes};
}

// The gradient with room for every row of the table: what raggrad.jax asks for.
template <class T, class I>
Measured Padded(const Stopwatch& watch, const Sizes& sizes) {
  Generator random(1);
  const SegmentIds<I> batch(watch, sizes, random);
  const std::vector<T> values = random.Values<T>(sizes.segments * sizes.width);
  const OnDevice grad(TensorView::Of(values.data(), Shape{sizes.segments, sizes.width}), watch.ctx());
  const auto rows = static_cast<int32_t>(sizes.table_rows);
  return {watch.Time([&](const Context& ctx) {
            return SparseSegmentGradV2Padded(SegmentCombiner::kMean, grad, batch.indices, batch.segment_ids,
                                             TensorView::Scalar(rows), sizes.table_rows, ctx);
          }),
          (sizes.segments + sizes.table_rows) * sizes.width * static_cast<int64_t>(sizeof(T)) +
              2 * batch.n * static_cast<int64_t>(sizeof(I))};
}

// Rows pooled by segments: of their own array, without indices.
template <class T>
Measured SegmentSum(const Stopwatch& watch, const Sizes& sizes, bool shuffled, bool known_to_ascend) {
  Generator random(1);
  const int64_t n = sizes.segments * sizes.ids_per_segment;
  std::vector<int32_t> ids = random.UniformIds<int32_t>(n, sizes.segments);
  if (!shuffled) std::ranges::sort(ids);
  const OnDevice data(TensorView::Of(random.Values<T>(n * sizes.width).data(), Shape{n, sizes.width}), watch.ctx());
  const OnDevice segment_ids(VectorView(ids), watch.ctx());
  return {watch.Time([&](const Context& ctx) {
            return PoolSegments(SegmentCombiner::kSum, data,
                                {segment_ids, sizes.segments, OutOfRange::kDrop, known_to_ascend}, ctx);
          }),
          (n + sizes.segments) * sizes.width * static_cast<int64_t>(sizeof(T)) + n * 4};
}

}  // namespace raggrad::bench
