#include <utility>

#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/first_error.h"
#include "raggrad/ops/ragged_variant/join.h"
#include "raggrad/ops/ragged_variant/kernels.h"

namespace raggrad::ragged_variant::cpu {
namespace {

using raggrad::cpu::FirstError;
using raggrad::cpu::ForEachChunk;
using raggrad::cpu::SplitEvenly;

// Where the values of each element lie in the output.
struct Layout {
  Scratch<int64_t> begins;
  int64_t total = 0;
  Shape shape;
};

template <class I>
Result<Layout> LayOut(const Problem& problem, std::span<const I> splits, const Context& ctx) noexcept {
  const auto rows = [&](int64_t i) -> std::optional<int64_t> {
    const size_t row = static_cast<size_t>(i);
    if (row + 1 >= splits.size()) return std::nullopt;
    return static_cast<int64_t>(splits[row + 1]) - static_cast<int64_t>(splits[row]);
  };
  Result<Scratch<int64_t>> counts = Scratch<int64_t>::Make(ctx, problem.n());
  if (!counts.ok()) return counts.status();

  Parallel& parallel = ctx.executor();
  FirstError fault;
  ForEachChunk(parallel, SplitEvenly(parallel, problem.n(), kCheckGrain), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Result<int64_t> count = CountValues(problem, i, rows(i));
      if (!count.ok()) return fault.Report(i);
      (*counts)[i] = *count;
    }
  });
  if (fault.found()) return CountValues(problem, fault.position(), rows(fault.position())).status();

  const std::optional<int64_t> total = SizesToBegins({counts->data(), problem.elements.size()});
  Result<Shape> shape = OutputShape(problem, total, rows(0));
  if (!shape.ok()) return shape.status();
  return Layout{*std::move(counts), *total, *std::move(shape)};
}

}  // namespace

Result<Tensor> ToVariantGradient(const Problem& problem, const Context& ctx) noexcept {
  const TensorView& row_splits = problem.row_splits;
  if (row_splits.rank() != 0) {
    if (Status s = CheckSplits(problem.op, "row_splits", row_splits, {}, ctx.executor()); !s.ok()) return s;
  }
  const Result<Layout> layout = Visit(IndexTypes{}, row_splits.dtype, [&]<class I>() -> Result<Layout> {
    const size_t size = row_splits.rank() == 0 ? 0 : static_cast<size_t>(row_splits.dim(0));
    return LayOut(problem, std::span(row_splits.As<I>(), size), ctx);
  });
  if (!layout.ok()) return layout.status();
  return Join({problem.op, "encoded_ragged_grad", 0, problem.elements, layout->begins.data(), layout->total,
               problem.dtype, layout->shape},
              ctx);
}

}  // namespace raggrad::ragged_variant::cpu
