#include <cmath>

#include "raggrad/cpu/convert.h"
#include "raggrad/cpu/row_split.h"
#include "raggrad/ops/sparse_segment/row_ops.h"
#include "raggrad/ops/sparse_segment/update/optimizer_job.h"
#include "raggrad/ops/sparse_segment/update/rowwise_adagrad.h"

namespace raggrad::sparse_segment::on_cpu {
namespace {

// Calls f(column, columns, values) for the strips of a row, widened, and +0 for -0.
template <class G, class F>
void ForEachStrip(const G* row, int64_t width, const F& f) noexcept {
  using A = SumType<G>;
  static_assert(kStrip<A> % kSquareLanes == 0);
  A strip[kStrip<A>];
  for (int64_t column = 0; column < width; column += kStrip<A>) {
    const int64_t columns = std::min(width - column, kStrip<A>);
    if constexpr (kIsShortFloat<G>) {
      cpu::BaselineConvert::WidenRow(row + column, strip, columns);
    } else {
      std::copy_n(row + column, columns, strip);
    }
    for (int64_t c = 0; c < columns; ++c) strip[c] += A{0};
    f(column, columns, strip);
  }
}

template <class A>
void AddSquares(const A* values, int64_t columns, A (&lanes)[kSquareLanes]) noexcept {
  int64_t c = 0;
  for (; c + kSquareLanes <= columns; c += kSquareLanes) {
    for (int lane = 0; lane < kSquareLanes; ++lane) lanes[lane] += values[c + lane] * values[c + lane];
  }
  for (int lane = 0; c < columns; ++lane, ++c) lanes[lane] += values[c] * values[c];
}

template <class G>
SumType<G> SumOfSquares(const G* row, int64_t width) noexcept {
  using A = SumType<G>;
  A lanes[kSquareLanes] = {};
  ForEachStrip(row, width, [&](int64_t, int64_t columns, const A* values) { AddSquares(values, columns, lanes); });
  for (int half = kSquareLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

template <class G, class Idx>
Status Apply(const SparseSegmentGradV2Output& rows, const UpdateProblem& problem, int64_t width,
             const Context& ctx) noexcept {
  using A = SumType<G>;
  const Result<OptimizerJob<A>> job = MakeOptimizerJob<A>(problem, width, ctx);
  if (!job.ok()) return job.status();
  const G* const values = rows.output.template As<G>();
  const Idx* const table_rows = rows.sorted_unique_indices.template As<Idx>();
  Executor& executor = ExecutorOf(ctx);
  const int64_t row_bytes = width * static_cast<int64_t>(sizeof(G));
  const cpu::Chunks chunks = cpu::SplitRows(executor, rows.output.shape()[0], row_bytes);
  cpu::ForEachChunk(executor, chunks, [&](int64_t, int64_t begin, int64_t end) {
    OptimizerJob<A> step = *job;
    for (int64_t i = begin; i < end; ++i) {
      const G* const gradient = values + i * width;
      const auto row = static_cast<int64_t>(table_rows[i]);
      A& sum = job->state1[row];
      sum += SumOfSquares(gradient, width) / static_cast<A>(width);
      step.rate = job->rate / (std::sqrt(sum) + job->epsilon);
      ForEachStrip(gradient, width, [&](int64_t column, int64_t columns, const A* strip) {
        step.step(step, row, column, columns, strip);
      });
    }
  });
  return {};
}

}  // namespace

Status ApplyRowwiseAdagrad(const SparseSegmentGradV2Output& rows, const UpdateProblem& problem, int64_t width,
                           const Context& ctx) noexcept {
  return Visit(FloatTypes{}, rows.output.dtype(), [&]<class G>() {
    return Visit(IndexTypes{}, rows.sorted_unique_indices.dtype(),
                 [&]<class Idx>() { return Apply<G, Idx>(rows, problem, width, ctx); });
  });
}

}  // namespace raggrad::sparse_segment::on_cpu
