#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "raggrad/core/error_text.h"
#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/first_error.h"
#include "raggrad/ops/ragged_variant/kernels.h"
#include "raggrad/ops/ragged_variant/splits.h"
#include "raggrad/ops/ragged_variant/values.h"

namespace raggrad::ragged_variant::on_cpu {
namespace {

using cpu::CopyCost;
using cpu::FirstError;
using cpu::ForEachChunk;
using cpu::ForEachRun;
using cpu::SplitCopy;
using cpu::SplitEvenly;

// Calls f(i) for every element, in parallel if there are many.
template <class F>
void ForEachElement(const FromVariantProblem& problem, Executor& executor, const F& f) noexcept {
  ForEachChunk(executor, SplitEvenly(executor, problem.n(), kElementGrain), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

template <auto kCheck>
Status CheckAll(const FromVariantProblem& problem, Executor& executor) noexcept {
  FirstError fault;
  ForEachElement(problem, executor, [&](int64_t i) {
    if (i < fault.position() && !kCheck(problem, i).ok()) fault.Report(i);
  });
  return fault.found() ? kCheck(problem, fault.position()) : Status();
}

Status CheckElements(const FromVariantProblem& problem, Executor& executor) noexcept {
  if (Status s = CheckAll<CheckElement>(problem, executor); !s.ok() || problem.shape.rank() == 0) return s;
  if (Status s = CheckAll<CheckSplitsAreNotEmpty>(problem, executor); !s.ok()) return s;
  if (Status s = CheckAll<CheckValuesRank>(problem, executor); !s.ok()) return s;
  return CheckAll<CheckValuesShape>(problem, executor);
}

// Makes the splits of the result, of type I, for an array of rank 1 or more. `sizes` and `offsets` are scratch with one
// number per element.
template <class I>
class Splits {
 public:
  Splits(const FromVariantProblem& problem, int64_t* sizes, int64_t* offsets, const Context& ctx) noexcept
      : problem_(problem), sizes_(sizes), offsets_(offsets), ctx_(ctx) {}

  Result<Tensor> Make(int64_t level) const noexcept {
    const int64_t dims = problem_.shape.rank();
    if (level < dims - 1) return Regular(level);
    return level == dims - 1 ? OfLengths(level) : OfElements(level, static_cast<size_t>(level - dims));
  }

 private:
  using Unsigned = std::make_unsigned_t<I>;

  Result<Tensor> Allocate(int64_t level, int64_t rows, std::optional<int64_t> last) const noexcept {
    if (!last || *last > std::numeric_limits<I>::max()) {
      return InvalidArgument(problem_.op, "splits do not fit ", kDTypeOf<I>, " [output_nested_splits[", level,
                             "]: expected rows of at most ", std::numeric_limits<I>::max(), " in all]");
    }
    return Allocate(level, rows);
  }
  // `rows` may be any number: a dimension of an array without elements can be INT64_MAX.
  Result<Tensor> Allocate(int64_t level, int64_t rows) const noexcept {
    if (rows == INT64_MAX) return MakeError(Code::kResourceExhausted, problem_.op, ": no memory for splits");
    return AllocateOutput(ctx_, static_cast<int>(level), kDTypeOf<I>, Shape{rows + 1});
  }

  // The level of a dimension of the array: all its rows have the length of the next dimension. As in TensorFlow, it has
  // as many rows as one row of the level above has, not as all of them together. From rank 3 on that is too few, unless
  // the level above has one row.
  Result<Tensor> Regular(int64_t level) const noexcept {
    const int64_t rows = problem_.shape[static_cast<int>(level)];
    const int64_t length = problem_.shape[static_cast<int>(level) + 1];
    int64_t last = 0;
    const bool overflow = __builtin_mul_overflow(rows, length, &last);
    Result<Tensor> output = Allocate(level, rows, overflow ? std::nullopt : std::optional(last));
    if (!output.ok()) return output;
    I* const out = output->template As<I>();
    for (int64_t i = 0; i <= rows; ++i) out[i] = static_cast<I>(i * length);
    return output;
  }

  // The level whose rows are the elements.
  Result<Tensor> OfLengths(int64_t level) const noexcept {
    ForEachElement(problem_, ExecutorOf(ctx_), [&](int64_t i) {
      const RaggedView& element = problem_.element(i);
      sizes_[i] = element.nested_splits.empty() ? element.values.dim(0) : element.nested_splits[0].dim(0) - 1;
    });
    const std::optional<int64_t> total = SizesToBegins(problem_.n(), [&](int64_t i) -> int64_t& { return sizes_[i]; });
    Result<Tensor> output = Allocate(level, problem_.n(), total);
    if (!output.ok()) return output;
    I* const out = output->template As<I>();
    for (int64_t i = 0; i < problem_.n(); ++i) out[i] = static_cast<I>(sizes_[i]);
    out[problem_.n()] = static_cast<I>(*total);
    return output;
  }

  // A level inside the elements: their own splits of that level, each moved by where the one before ended. As in
  // TensorFlow they are not checked: the first counts as 0 whatever it is, and sums wrap around.
  Result<Tensor> OfElements(int64_t level, size_t own_level) const noexcept {
    const auto own = [&](int64_t i) -> const TensorView& { return problem_.element(i).nested_splits[own_level]; };
    ForEachElement(problem_, ExecutorOf(ctx_), [&](int64_t i) {
      const int64_t rows = own(i).dim(0) - 1;
      sizes_[i] = rows;
      offsets_[i] = rows == 0 ? 0 : own(i).template As<I>()[rows];
    });
    const std::optional<int64_t> rows = SizesToBegins(problem_.n(), [&](int64_t i) -> int64_t& { return sizes_[i]; });
    if (!rows) return MakeError(Code::kResourceExhausted, problem_.op, ": no memory for splits");
    Unsigned offset = 0;
    for (int64_t i = 0; i < problem_.n(); ++i) {
      const int64_t end = std::exchange(offsets_[i], static_cast<int64_t>(offset));
      offset = static_cast<Unsigned>(offset + static_cast<Unsigned>(end));
    }
    Result<Tensor> output = Allocate(level, *rows);
    if (!output.ok()) return output;
    I* const out = output->template As<I>();
    out[0] = 0;

    Executor& executor = ExecutorOf(ctx_);
    const auto begin_of = [&](int64_t i) { return i < problem_.n() ? sizes_[i] : *rows; };
    const int64_t cost = CopyCost(*rows, sizeof(I), problem_.n());
    ForEachChunk(executor, SplitCopy(executor, *rows, cost), [&](int64_t, int64_t begin, int64_t end) {
      ForEachRun(problem_.n(), begin_of, begin, end, [&](int64_t i, int64_t at, int64_t count) {
        const I* const from = own(i).template As<I>() + (at - sizes_[i]) + 1;
        const Unsigned moved = static_cast<Unsigned>(offsets_[i]);
        I* const to = out + at + 1;
        for (int64_t j = 0; j < count; ++j) to[j] = static_cast<I>(Unsigned(from[j]) + moved);
      });
    });
    return output;
  }

  const FromVariantProblem& problem_;
  int64_t* const sizes_;
  int64_t* const offsets_;
  const Context& ctx_;
};

Result<Tensor> JoinValues(const FromVariantProblem& problem, const Context& ctx) noexcept {
  const int output = static_cast<int>(problem.output_ragged_rank);
  // Without elements the inner shape of the values is not known: as in TensorFlow, they have none.
  if (problem.n() == 0) return AllocateOutput(ctx, output, problem.values_dtype, Shape{0});
  int64_t rows = 0;
  bool overflow = false;
  if (problem.output_ragged_rank == 0) {
    rows = problem.n();
  } else {
    for (int64_t i = 0; i < problem.n(); ++i) {
      overflow |= __builtin_add_overflow(rows, problem.element(i).values.dim(0), &rows);
    }
  }
  const Shape& first = problem.element(0).values.shape;
  const Shape shape = Shape::WithDim0(rows, problem.output_ragged_rank == 0 ? first.dims() : first.tail());
  if (!shape.valid()) return MakeError(Code::kResourceExhausted, problem.op, ": no memory for a shape");

  Result<Scratch<Piece>> pieces = Scratch<Piece>::Make(ctx, problem.n());
  if (!pieces.ok()) return pieces.status();
  ForEachElement(problem, ExecutorOf(ctx), [&](int64_t i) {
    const TensorView& values = problem.element(i).values;
    (*pieces)[i] = {values.data, *values.shape.NumElements()};
  });
  const auto size = [&](int64_t i) -> int64_t& { return (*pieces)[i].begin; };
  if (!SizesToBegins(problem.n(), size) || overflow) {
    return InvalidArgument(problem.op, "there are too many values [encoded_ragged: expected less than 2^63 in all]");
  }
  return Join(problem.op, problem.device,
              {"encoded_ragged", output, {pieces->data(), problem.elements.size()}, problem.values_dtype, shape}, ctx);
}

// Makes all levels of the result.
template <class I>
Status MakeSplits(const FromVariantProblem& problem, List<Tensor>& nested_splits, const Context& ctx) noexcept {
  const bool scalar = problem.shape.rank() == 0;
  Result<Scratch<int64_t>> sizes = Scratch<int64_t>::Make(ctx, scalar ? 0 : problem.n());
  if (!sizes.ok()) return sizes.status();
  Result<Scratch<int64_t>> offsets = Scratch<int64_t>::Make(ctx, problem.input_ragged_rank > 0 ? problem.n() : 0);
  if (!offsets.ok()) return offsets.status();
  const Splits<I> splits(problem, sizes->data(), offsets->data(), ctx);
  for (int64_t level = 0; level < problem.output_ragged_rank; ++level) {
    Result<Tensor> made = scalar ? Copy(problem.op, "encoded_ragged", static_cast<int>(level),
                                        problem.element(0).nested_splits[static_cast<size_t>(level)], ctx)
                                 : splits.Make(level);
    if (!made.ok()) return made.status();
    nested_splits[level] = *std::move(made);
  }
  return {};
}

template <class I>
Result<Ragged> Stack(const FromVariantProblem& problem, const Context& ctx) noexcept {
  Result<List<Tensor>> nested_splits = List<Tensor>::Make(ctx.allocator, problem.output_ragged_rank);
  if (!nested_splits.ok()) return nested_splits.status();
  Result<List<TensorView>> split_views = List<TensorView>::Make(ctx.allocator, problem.output_ragged_rank);
  if (!split_views.ok()) return split_views.status();
  if (Status s = MakeSplits<I>(problem, *nested_splits, ctx); !s.ok()) return s;
  Result<Tensor> values = problem.shape.rank() == 0
                              ? Copy(problem.op, "encoded_ragged", static_cast<int>(problem.output_ragged_rank),
                                     problem.element(0).values, ctx)
                              : JoinValues(problem, ctx);
  if (!values.ok()) return values.status();
  return Ragged(*std::move(nested_splits), *std::move(split_views), *std::move(values));
}

}  // namespace

Result<Ragged> FromVariant(const FromVariantProblem& problem, const Context& ctx) noexcept {
  if (Status s = CheckElements(problem, ExecutorOf(ctx)); !s.ok()) return s;
  return Visit(IndexTypes{}, problem.splits_dtype, [&]<class I>() -> Result<Ragged> { return Stack<I>(problem, ctx); });
}

}  // namespace raggrad::ragged_variant::on_cpu
