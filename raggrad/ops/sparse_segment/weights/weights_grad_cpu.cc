// CPU backend of the weights' gradient: one pass over the rows, a segment at a time.
#include <algorithm>

#include "raggrad/cpu/isa_choice.h"
#include "raggrad/cpu/row_split.h"
#include "raggrad/ops/sparse_segment/forward/check_ids.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/weights/divisor.h"
#include "raggrad/ops/sparse_segment/weights/dot_rows.h"
#include "raggrad/ops/sparse_segment/weights/runs.h"
#include "raggrad/ops/sparse_segment/weights/weights.h"

namespace raggrad::sparse_segment::on_cpu {
namespace {

// Turns the dot products of a segment, ids [begin, end), into the gradient of its weights.
template <class A>
void Finish(const ForwardProblem& p, const A* weights, int64_t begin, int64_t end, const Context& ctx,
            A* dots) noexcept {
  if (p.combiner == SegmentCombiner::kSum) return;
  const WeightDivisor by = p.weights->divisor;
  const A divisor = DivisorOfRun(p.combiner, by, weights, begin, end, ctx);
  if (by == WeightDivisor::kCount) {
    for (int64_t i = begin; i < end; ++i) dots[i] /= divisor;
    return;
  }
  if (divisor == A{0}) {
    std::fill(dots + begin, dots + end, A{0});
    return;
  }
  A total = 0;  // the dot product of grad and the weighted sum of rows
  if (IsReproducible(ctx)) {
    total = SumOrderFree<A>(begin, end, [&](int64_t i) { return weights[i] * dots[i]; });
  } else {
    for (int64_t i = begin; i < end; ++i) total += weights[i] * dots[i];
  }
  const A mean = total / divisor;
  if (p.combiner == SegmentCombiner::kMean) {
    for (int64_t i = begin; i < end; ++i) dots[i] = (dots[i] - mean) / divisor;
  } else {
    const A share = mean / divisor;
    for (int64_t i = begin; i < end; ++i) dots[i] = (dots[i] - weights[i] * share) / divisor;
  }
}

// Computes the dot products of every segment, then calls finish(begin, end) for its ids, while they are in the cache.
// Only segments that lie in several chunks wait until all chunks are done.
template <class T, class Seg, class F>
Status DotRows(const WeightsGradProblem& p, int64_t width, SumType<T>* dots, const Context& ctx,
               const F& finish) noexcept {
  const auto loops = cpu::ChooseByIsa(ctx, []<Isa I>() { return &DotLoopsFor<I>(); });
  if (!loops.ok()) return loops.status();
  const DotRowsFunction<T> dot = (*loops)->template of<T>().dot;
  const ForwardProblem& f = p.forward;
  const DotJob<T> job = {f.data.As<T>(), width, CheckedIds(f.indices), f.n(), dots};
  const Seg* const segment_ids = f.segment_ids.As<Seg>();
  Executor& executor = ExecutorOf(ctx);
  const int64_t row_bytes = std::max<int64_t>(width, 1) * static_cast<int64_t>(sizeof(T));
  const cpu::Chunks chunks = cpu::SplitRows(executor, f.n(), row_bytes);
  const Status s =
      cpu::ForEachChunkUntilStopped(executor, chunks, [&](int64_t, int64_t chunk_begin, int64_t chunk_end) {
        for (int64_t begin = chunk_begin, end = begin; begin < chunk_end; begin = end) {
          while (end < chunk_end && segment_ids[end] == segment_ids[begin]) ++end;
          dot(job, p.grad.As<T>() + static_cast<int64_t>(segment_ids[begin]) * width, begin, end);
          if (IsWholeRun(segment_ids, f.n(), begin, end)) finish(begin, end);
        }
      });
  if (s.ok()) ForEachCutRun(segment_ids, chunks, finish);
  return s;
}

template <class T, class Seg>
Result<Tensor> WeightsGrad(const WeightsGradProblem& p, const Context& ctx) noexcept {
  using A = SumType<T>;
  const ForwardProblem& f = p.forward;
  if (!f.ids_checked) {
    const Result<int64_t> rows = RowsOf(f);
    if (!rows.ok()) return rows.status();
    if (Status s = CheckIds(f, ExecutorOf(ctx), *rows); !s.ok()) return s;
  }
  const TensorView& values = f.weights->values;
  Result<Tensor> output = AllocateOutput(ctx, 0, values.dtype, Shape{f.n()});
  if (!output.ok() || f.n() == 0) return output;
  const Result<WideWeights<A>> weights = WideWeights<A>::Make(values, ctx);
  if (!weights.ok()) return weights.status();
  const bool in_place = values.dtype == kDTypeOf<A>;
  Result<Scratch<A>> scratch = in_place ? Scratch<A>() : Scratch<A>::Make(ctx, f.n());
  if (!scratch.ok()) return scratch.status();
  A* const dots = in_place ? output->As<A>() : scratch->data();
  const int64_t width = Shape::Product(f.data.shape.tail()).value_or(0);
  const Status computed = Visit(WeightTypes<A>{}, values.dtype, [&]<class W>() {
    W* const out = output->As<W>();
    return DotRows<T, Seg>(p, width, dots, ctx, [&](int64_t begin, int64_t end) {
      Finish(f, weights->data(), begin, end, ctx, dots);
      if constexpr (!std::is_same_v<W, A>) {
        for (int64_t i = begin; i < end; ++i) NarrowWeight(dots[i], out[i]);
      }
    });
  });
  if (!computed.ok()) return computed;
  return output;
}

}  // namespace

Result<Tensor> WeightsGrad(const WeightsGradProblem& problem, const Context& ctx) noexcept {
  const ForwardProblem& f = problem.forward;
  return Visit(FloatTypes{}, f.data.dtype, [&]<class T>() {
    return Visit(IndexTypes{}, f.segment_ids.dtype,
                 [&]<class Seg>() -> Result<Tensor> { return WeightsGrad<T, Seg>(problem, ctx); });
  });
}

}  // namespace raggrad::sparse_segment::on_cpu
