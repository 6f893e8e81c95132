// The split of the loops over workers. Only the CPU has these functions.
#include "raggrad/ops/sparse_segment/split_sums.h"

#include <algorithm>
#include <cstring>

#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/float_environment.h"
#include "raggrad/cpu/isa_choice.h"
#include "raggrad/cpu/row_split.h"
#include "raggrad/ops/sparse_segment/forward/check_ids.h"
#include "raggrad/ops/sparse_segment/forward/pool_reproducible.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/split/split_checks.h"
#include "raggrad/ops/sparse_segment/weights/runs.h"

namespace raggrad {
namespace sparse_segment {
namespace {

// The grid of a sum that has terms. The addition makes +0 of -0 and of subnormal numbers.
template <class A>
SumGrid<A> GridAt(const TensorView& largest, const TensorView& counts, int64_t segment) noexcept {
  return GridOf(largest.As<A>()[segment] + A{0}, counts.As<int64_t>()[segment]);
}

// Calls run(row_begin, row_end, column_begin, column_end, first_id) in parallel for ranges of segments. first_id(row)
// is the first id of a segment.
template <class Seg, class F>
Status ForEachRange(const ForwardProblem& p, int64_t width, int64_t row_bytes, const Context& ctx,
                    const F& run) noexcept {
  const Seg* const ids = p.segment_ids.As<Seg>();
  const auto first_id = [ids, n = p.n()](int64_t row) { return std::lower_bound(ids, ids + n, row) - ids; };
  const int64_t rows = *p.num_segments;
  // The first segment that begins at id `unit` or later, so that work is cut by ids. Segments without ids come along.
  const auto row_at = [&](int64_t unit) { return unit >= p.n() ? rows : unit == 0 ? 0 : int64_t{ids[unit - 1]} + 1; };
  const auto length = [&](int64_t row) { return first_id(row + 1) - first_id(row); };
  Executor& executor = ExecutorOf(ctx);
  const cpu::Chunks chunks = cpu::SplitRows(executor, p.n(), std::max<int64_t>(row_bytes, 1));
  return cpu::RunRows(executor, chunks, rows, width, row_at, length,
                      [&](int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
                        run(row_begin, row_end, column_begin, column_end, first_id);
                      });
}

template <class T>
PoolJob<T> JobOf(const ForwardProblem& p, int64_t width) noexcept {
  return {.combiner = p.combiner,
          .data = p.data.As<T>(),
          .width = width,
          .indices = CheckedIds(p.indices),
          .num_ids = p.n(),
          .output = nullptr,
          .weights = p.weights != nullptr ? p.weights->values.As<SumType<T>>() : nullptr};
}

template <class T>
Result<const PoolReproducibly<T>*> LoopsOf(const Context& ctx) noexcept {
  const auto loops = cpu::ChooseByIsa(ctx, []<Isa I>() { return &PoolReproduciblyLoopsFor<I>(); });
  if (!loops.ok()) return loops.status();
  return &(*loops)->template of<T>();
}

int64_t WidthOf(const ForwardProblem& p) noexcept {
  return p.n() == 0 ? 0 : Shape::Product(p.data.shape.tail()).value_or(0);
}

template <class T, class Seg>
Result<Tensor> Largest(const ForwardProblem& p, const Context& ctx) noexcept {
  using A = SumType<T>;
  const auto run = LoopsOf<T>(ctx);
  if (!run.ok()) return run.status();
  if (Status s = on_cpu::CheckIds(p, ExecutorOf(ctx), *p.num_segments); !s.ok()) return s;
  Result<Tensor> output = AllocateOutput(ctx, 0, SumDType(p.data.dtype), Shape{*p.num_segments});
  if (!output.ok()) return output;
  A* const out = output->As<A>();
  std::fill_n(out, *p.num_segments, A{0});
  const int64_t width = WidthOf(p);
  if (width == 0) return output;
  const PoolJob<T> job = JobOf<T>(p, width);
  const auto search = [&](int64_t row_begin, int64_t row_end, int64_t, int64_t, const auto& first_id) {
    const Seg* const segments = p.segment_ids.As<Seg>();
    ForEachRun(segments, p.n(), first_id(row_begin), first_id(row_end), [&](int64_t begin, int64_t end) {
      out[segments[begin]] = (*run)->largest(job, {begin, end});
    });
  };
  // One column: the search for the largest value is not cut by columns.
  const Status done = ForEachRange<Seg>(p, 1, width * static_cast<int64_t>(sizeof(T)), ctx, search);
  if (!done.ok()) return done;
  return output;
}

template <class T, class Seg>
Result<Tensor> Sums(const ForwardProblem& p, const TensorView& largest, const TensorView& counts,
                    const Context& ctx) noexcept {
  using A = SumType<T>;
  const auto run = LoopsOf<T>(ctx);
  if (!run.ok()) return run.status();
  if (Status s = on_cpu::CheckIds(p, ExecutorOf(ctx), *p.num_segments); !s.ok()) return s;
  if (Status s = CheckGrids<A>(p.op, largest, counts); !s.ok()) return s;
  if (Status s = CheckTermCounts<Seg>(p, counts.As<int64_t>()); !s.ok()) return s;
  // Data without rows may have any inner dimensions: a width that cannot be counted finds no memory.
  constexpr int64_t kWidest = INT64_MAX / SumGrid<A>::kSums;
  const int64_t width = std::min(Shape::Product(p.data.shape.tail()).value_or(kWidest), kWidest);
  const int64_t row_length = width * SumGrid<A>::kSums;
  const Shape shape{*p.num_segments, row_length};
  if (!shape.NumElements()) {
    return InvalidArgument(p.op, "Shape ", shape, " results in overflow when computing number of elements [sums]");
  }
  Result<Tensor> output = AllocateOutput(ctx, 0, DType::kFloat64, shape);
  if (!output.ok()) return output;
  if (output->bytes() == 0) return output;
  auto* const out = output->As<double>();
  const PoolJob<T> job = JobOf<T>(p, width);
  const auto sum = [&](int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end,
                       const auto& first_id) {
    const Seg* const segments = p.segment_ids.As<Seg>();
    int64_t id = first_id(row_begin);
    for (int64_t row = row_begin; row < row_end; ++row) {
      double* const sums = out + row * row_length;
      int64_t next = id;
      while (next < p.n() && segments[next] == row) ++next;
      if (next == id) {
        std::memset(sums, 0, static_cast<size_t>(row_length) * sizeof(double));
      } else {
        const auto grid = GridAt<A>(largest, counts, row);
        (*run)->sum_part(job, grid, {id, next}, {column_begin, column_end}, sums);
      }
      id = next;
    }
  };
  const Status done = ForEachRange<Seg>(p, width, row_length * static_cast<int64_t>(sizeof(double)), ctx, sum);
  if (!done.ok()) return done;
  return output;
}

template <class T>
Result<Tensor> Round(std::string_view op, SegmentCombiner combiner, const TensorView& sums, const TensorView& largest,
                     const TensorView& counts, const Context& ctx) noexcept {
  using A = SumType<T>;
  const auto run = LoopsOf<T>(ctx);
  if (!run.ok()) return run.status();
  if (Status s = CheckGrids<A>(op, largest, counts); !s.ok()) return s;
  const int64_t rows = sums.dim(0);
  const int64_t row_length = sums.dim(1);
  const int64_t width = row_length / SumGrid<A>::kSums;
  Result<Tensor> output = AllocateOutput(ctx, 0, kDTypeOf<T>, Shape{rows, width});
  if (!output.ok()) return output;
  if (output->bytes() == 0) return output;
  const PoolJob<T> job = {
      .combiner = combiner, .data = {}, .width = width, .indices = {}, .num_ids = 0, .output = output->As<T>()};
  Executor& executor = ExecutorOf(ctx);
  const cpu::Chunks chunks = cpu::SplitRows(executor, rows, row_length * static_cast<int64_t>(sizeof(double)));
  const Status done = cpu::ForEachChunkUntilStopped(executor, chunks, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t count = counts.As<int64_t>()[row];
      if (count == 0) {
        std::memset(static_cast<void*>(job.output + row * width), 0, static_cast<size_t>(width) * sizeof(T));
      } else {
        (*run)->finish(job, row, count, GridAt<A>(largest, counts, row), sums.As<double>() + row * row_length);
      }
    }
  });
  if (!done.ok()) return done;
  return output;
}

// Calls f() in the library's floating-point environment; errors get the operator's name.
template <class F>
Result<Tensor> OnCpu(std::string_view op, const F& f) noexcept {
  return WithOp(op, [&] { return cpu::InFloatEnvironment(f); });
}

// Calls f<T, Seg>() with the types of the data and the segment ids.
template <class F>
Result<Tensor> Run(const ForwardProblem& p, const F& f) noexcept {
  return OnCpu(p.op, [&] {
    return Visit(FloatTypes{}, p.data.dtype, [&]<class T>() {
      return Visit(IndexTypes{}, p.segment_ids.dtype,
                   [&]<class Seg>() -> Result<Tensor> { return f.template operator()<T, Seg>(); });
    });
  });
}

}  // namespace
}  // namespace sparse_segment

Result<Tensor> LargestSplitTerms(const SplitTerms& terms, int64_t num_segments, const Context& ctx) noexcept {
  SegmentWeights factors;
  const auto problem = sparse_segment::CheckTerms("LargestSplitTerms", terms, num_segments, factors);
  if (!problem.ok()) return problem.status();
  return sparse_segment::Run(*problem,
                             [&]<class T, class Seg>() { return sparse_segment::Largest<T, Seg>(*problem, ctx); });
}

Result<Tensor> SumSplitTerms(const SplitTerms& terms, const TensorView& largest, const TensorView& counts,
                             const Context& ctx) noexcept {
  constexpr std::string_view op = "SumSplitTerms";
  if (Status s = CheckOperands(op, {{"data", terms.data}, {"largest", largest}, {"counts", counts}}); !s.ok()) return s;
  const int64_t segments = counts.rank() == 1 ? counts.dim(0) : 0;
  SegmentWeights factors;
  const auto problem = sparse_segment::CheckTerms(op, terms, segments, factors);
  if (!problem.ok()) return problem.status();
  const DType type = sparse_segment::SumDType(terms.data.dtype);
  if (Status s = sparse_segment::CheckSegmentArray(op, "counts", counts, DType::kInt64, segments); !s.ok()) return s;
  if (Status s = sparse_segment::CheckSegmentArray(op, "largest", largest, type, segments); !s.ok()) return s;
  return sparse_segment::Run(
      *problem, [&]<class T, class Seg>() { return sparse_segment::Sums<T, Seg>(*problem, largest, counts, ctx); });
}

Result<Tensor> RoundSplitSums(SegmentCombiner combiner, DType dtype, const TensorView& sums, const TensorView& largest,
                              const TensorView& counts, const Context& ctx) noexcept {
  constexpr std::string_view op = "RoundSplitSums";
  if (Status s = CheckDType(op, "dtype", dtype, FloatTypes{}); !s.ok()) return s;
  if (Status s = CheckDType(op, "sums", sums.dtype, TypeList<double>{}); !s.ok()) return s;
  if (Status s = CheckOperands(op, {{"sums", sums}, {"largest", largest}, {"counts", counts}}); !s.ok()) return s;
  if (Status s = sparse_segment::CheckHost(op, sums); !s.ok()) return s;
  const int64_t per_column = sparse_segment::SumsPerColumn(dtype);
  if (sums.rank() != 2 || sums.dim(1) % per_column != 0) {
    return InvalidArgument(op, "sums have the wrong shape [sums: expected 2 dimensions, the second a multiple of ",
                           per_column, ", got shape ", sums.shape, "]");
  }
  const DType type = sparse_segment::SumDType(dtype);
  const int64_t rows = sums.dim(0);
  if (Status s = sparse_segment::CheckSegmentArray(op, "largest", largest, type, rows); !s.ok()) return s;
  if (Status s = sparse_segment::CheckSegmentArray(op, "counts", counts, DType::kInt64, rows); !s.ok()) return s;
  return sparse_segment::OnCpu(op, [&] {
    return Visit(FloatTypes{}, dtype,
                 [&]<class T>() { return sparse_segment::Round<T>(op, combiner, sums, largest, counts, ctx); });
  });
}

}  // namespace raggrad
