// CPU backend of the forwards: checks of the ids, the output, split of the row loop over workers.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/exact_split.h"
#include "raggrad/cpu/isa_choice.h"
#include "raggrad/cpu/row_split.h"
#include "raggrad/ops/sparse_segment/forward/check_ids.h"
#include "raggrad/ops/sparse_segment/forward/forward_checks.h"
#include "raggrad/ops/sparse_segment/forward/pool_reproducible.h"
#include "raggrad/ops/sparse_segment/forward/pool_rows.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/weights/runs.h"
#include "raggrad/ops/sparse_segment/weights/weights.h"

namespace raggrad::sparse_segment::on_cpu {
namespace {

// Finds the ids of an output row by binary search in the sorted ids. A unit of work is an output row to write or a row
// of data to read, so that long segments and long gaps between segments are both cut.
template <class Seg>
struct SegmentRows {
  const Seg* ids;
  int64_t n;

  int64_t first_id(int64_t row) const noexcept { return std::lower_bound(ids, ids + n, row) - ids; }
  int64_t length(int64_t row) const noexcept { return first_id(row + 1) - first_id(row); }

  // Row r begins at unit r + first_id(r), and id i is at unit i + ids[i] + 1.
  int64_t row_at(int64_t unit) const noexcept {
    int64_t id = 0;  // the first that is behind `unit`
    for (int64_t upper = n; id < upper;) {
      const int64_t middle = id + (upper - id) / 2;
      if (middle + ids[middle] < unit) {
        id = middle + 1;
      } else {
        upper = middle;
      }
    }
    const int64_t row = unit - id;
    return id > 0 && ids[id - 1] == row ? row + 1 : row;  // a row with an id before this one began before
  }
};

// Pools the output rows [row_begin, row_end) that are segments and zeroes the others. A call for some of the columns
// has no others.
template <class T, class Seg>
void PoolRows(const PoolJob<T>& job, const SegmentRows<Seg>& segments, PoolSegmentsFunction<T> pool, int64_t row_begin,
              int64_t row_end, int64_t column_begin, int64_t column_end) noexcept {
  const auto zero = [&](int64_t begin, int64_t end) {
    std::memset(static_cast<void*>(job.output + begin * job.width), 0,
                static_cast<size_t>((end - begin) * job.width) * sizeof(T));
  };
  SegmentBatch batch;
  int64_t row = row_begin;
  int64_t id = segments.first_id(row_begin);
  const int64_t end = segments.first_id(row_end);
  while (id < end) {
    const Seg segment = segments.ids[id];
    if (row < segment) zero(row, segment);
    batch.rows[batch.count] = segment;
    batch.starts[batch.count++] = id;
    while (id < end && segments.ids[id] == segment) ++id;
    batch.starts[batch.count] = id;
    row = int64_t{segment} + 1;
    if (batch.count == SegmentBatch::kCapacity || id == end) {
      pool(job, batch, column_begin, column_end);
      batch.count = 0;
    }
  }
  if (row < row_end) zero(row, row_end);
}

// The output rows of Accumulation::kReproducible, for RunExactRows.
template <class T, class Seg>
struct ReproducibleRows {
  using A = SumType<T>;
  const PoolJob<T>& job;
  const SegmentRows<Seg>& segments;
  const PoolReproducibly<T>& run;

  int64_t row_at(int64_t unit) const noexcept { return segments.row_at(unit); }
  cpu::Span terms(int64_t row) const noexcept { return {segments.first_id(row), segments.first_id(row + 1)}; }
  void Sum(int64_t row_begin, int64_t row_end) const noexcept {
    PoolRows(job, segments, run.pool, row_begin, row_end, 0, job.width);
  }
  A Largest(cpu::Span ids) const noexcept { return run.largest(job, ids); }
  void SumPart(const SumGrid<A>& grid, cpu::Span ids, cpu::Span columns, double* sums) const noexcept {
    run.sum_part(job, grid, ids, columns, sums);
  }
  void Finish(int64_t row, const SumGrid<A>& grid, const double* sums) const noexcept {
    run.finish(job, row, segments.length(row), grid, sums);
  }
};

// D(s) of every output row that has ids, as the gradient computes it; empty if the numbers of ids are the divisors.
template <class T, class Seg>
Result<Scratch<double>> MakeDivisors(const PoolJob<T>& job, const SegmentRows<Seg>& segments, int64_t rows,
                                     const Context& ctx) noexcept {
  const bool by_weights = job.weights != nullptr && job.divisor == WeightDivisor::kWeights;
  if (!by_weights || job.combiner == SegmentCombiner::kSum) return Scratch<double>();
  Result<Scratch<double>> divisors = Scratch<double>::Make(ctx, rows);
  if (!divisors.ok()) return divisors;
  Executor& executor = ExecutorOf(ctx);
  const Status made = cpu::ForEachChunkUntilStopped(
      executor, cpu::SplitEvenly(executor, job.num_ids, kWeightGrain), [&](int64_t, int64_t begin, int64_t end) {
        ForEachRun(segments.ids, job.num_ids, begin, end, [&](int64_t first, int64_t last) {
          const auto divisor = DivisorOfRun(job.combiner, job.divisor, job.weights, first, last, ctx);
          (*divisors)[segments.ids[first]] = static_cast<double>(divisor);
        });
      });
  if (!made.ok()) return made;
  return divisors;
}

template <class T, class Seg>
Status PoolAllReproducibly(PoolJob<T> job, const SegmentRows<Seg>& segments, int64_t rows, const cpu::Chunks& chunks,
                           const Context& ctx) noexcept {
  const Result<Scratch<double>> divisors = MakeDivisors(job, segments, rows, ctx);
  if (!divisors.ok()) return divisors.status();
  job.divisors = divisors->data();
  const auto loops = cpu::ChooseByIsa(ctx, []<Isa I>() { return &PoolReproduciblyLoopsFor<I>(); });
  if (!loops.ok()) return loops.status();
  const ReproducibleRows<T, Seg> exact = {job, segments, (*loops)->template of<T>()};
  return cpu::RunExactRows<SumType<T>>(ctx, chunks, rows, job.width, exact);
}

template <class T>
Result<PoolSegmentsFunction<T>> ChoosePool(const ForwardProblem& p, const Context& ctx) noexcept {
  if constexpr (Contains(FloatTypes{}, kDTypeOf<T>)) {
    if (p.weights != nullptr) {
      const auto loops = cpu::ChooseByIsa(ctx, []<Isa I>() { return &WeightedPoolLoopsFor<I>(); });
      if (!loops.ok()) return loops.status();
      return (*loops)->template of<T>().pool;
    }
  }
  const auto loops = cpu::ChooseByIsa(ctx, []<Isa I>() { return &PoolLoopsFor<I>(); });
  if (!loops.ok()) return loops.status();
  return (*loops)->template of<T>().pool;
}

// Empty if the problem has no weights.
template <class A>
Result<WideWeights<A>> ReadWeights(const ForwardProblem& p, const Context& ctx) noexcept {
  if constexpr (std::is_floating_point_v<A>) {
    if (p.weights != nullptr) return WideWeights<A>::Make(p.weights->values, ctx);
  }
  return WideWeights<A>();
}

// Pools into an output of `rows` rows, which is not empty. The ids are checked.
template <class T, class Seg>
Status Pool(const ForwardProblem& p, int64_t rows, const Context& ctx, Tensor& output) noexcept {
  const int64_t width = *Shape::Product(p.data.shape.tail());
  const Result<WideWeights<SumType<T>>> weights = ReadWeights<SumType<T>>(p, ctx);
  if (!weights.ok()) return weights.status();
  const PoolJob<T> job = {.combiner = p.combiner,
                          .data = p.data.As<T>(),
                          .width = width,
                          .indices = CheckedIds(p.indices),
                          .num_ids = p.n(),
                          .output = output.As<T>(),
                          .weights = weights->data(),
                          .divisor = p.weights != nullptr ? p.weights->divisor : WeightDivisor{}};
  const SegmentRows<Seg> segments = {p.segment_ids.As<Seg>(), p.n()};
  Executor& executor = ExecutorOf(ctx);
  const cpu::Chunks chunks = cpu::SplitRows(executor, p.n() + rows, width * static_cast<int64_t>(sizeof(T)));
  if constexpr (Contains(FloatTypes{}, kDTypeOf<T>)) {  // integers have one sum in any order
    if (ctx.accumulation == Accumulation::kReproducible) return PoolAllReproducibly(job, segments, rows, chunks, ctx);
  }
  const Result<PoolSegmentsFunction<T>> pool = ChoosePool<T>(p, ctx);
  if (!pool.ok()) return pool.status();
  return cpu::RunRows(
      executor, chunks, rows, width, [&](int64_t unit) { return segments.row_at(unit); },
      [&](int64_t row) { return segments.length(row); },
      [&](int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
        PoolRows(job, segments, *pool, row_begin, row_end, column_begin, column_end);
      });
}

}  // namespace

Result<Tensor> Forward(const ForwardProblem& p, const Context& ctx) noexcept {
  const Result<int64_t> rows = RowsOf(p);
  if (!rows.ok()) return rows.status();
  // The output comes before the checks of the other ids: TensorFlow reports too large an output before a bad id.
  const Result<Shape> shape = OutputShape(p, *rows);
  if (!shape.ok()) return shape.status();
  Result<Tensor> output = AllocateOutput(ctx, 0, p.data.dtype, *shape);
  if (!output.ok()) return output;
  if (!p.ids_checked) {
    if (Status s = CheckIds(p, ExecutorOf(ctx), *rows); !s.ok()) return s;
  }
  if (output->bytes() == 0) return output;
  const Status pooled = Visit(SumTypes{}, p.data.dtype, [&]<class T>() {
    return Visit(IndexTypes{}, p.segment_ids.dtype,
                 [&]<class Seg>() { return Pool<typename RowType<T>::type, Seg>(p, *rows, ctx, *output); });
  });
  if (!pooled.ok()) return pooled;
  return output;
}

}  // namespace raggrad::sparse_segment::on_cpu
