#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "raggrad/core/error_text.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/first_error.h"
#include "raggrad/cuda/host_copy.h"
#include "raggrad/ops/ragged_variant/kernels.h"
#include "raggrad/ops/ragged_variant/splits.h"
#include "raggrad/ops/ragged_variant/values.h"

namespace raggrad::ragged_variant::on_cpu {
namespace {

using cpu::Chunks;
using cpu::CopyCost;
using cpu::FirstError;
using cpu::ForEachChunk;
using cpu::ForEachRun;
using cpu::kCopyChunksPerWorker;
using cpu::SplitCopy;
using cpu::SplitEvenly;

constexpr int64_t kDescribeGrain = 1024;  // elements: some 20 us of writing their views

// All levels of splits, in host memory: those on a GPU are copied.
class HostSplits {
 public:
  static Result<HostSplits> Make(const ToVariantProblem& problem, const Context& ctx) noexcept {
    HostSplits splits;
    splits.views_ = problem.splits;
    const auto elsewhere = [](const TensorView& level) { return !level.device.is_cpu(); };
    if (std::ranges::none_of(problem.splits, elsewhere)) return splits;
    auto copies = List<Tensor>::Make(&DefaultAllocator(), problem.levels());
    if (!copies.ok()) return copies.status();
    auto views = List<TensorView>::Make(&DefaultAllocator(), problem.levels());
    if (!views.ok()) return views.status();
    for (int64_t i = 0; i < problem.levels(); ++i) {
      (*views)[i] = problem.level(i);
      if (!elsewhere(problem.level(i))) continue;
      Result<Tensor> copy = cuda::CopyToHost(problem.op, problem.level(i), ctx);
      if (!copy.ok()) return copy.status();
      (*copies)[i] = *std::move(copy);
      (*views)[i] = (*copies)[i].view();
    }
    splits.copies_ = *std::move(copies);
    splits.copied_views_ = *std::move(views);
    splits.views_ = splits.copied_views_.span();
    return splits;
  }

  std::span<const TensorView> views() const noexcept { return views_; }

 private:
  List<Tensor> copies_;
  List<TensorView> copied_views_;
  std::span<const TensorView> views_;
};

Status CheckLevels(const ToVariantProblem& problem, Executor& executor) noexcept {
  int64_t rows = problem.levels() == 0 ? 0 : problem.values.dim(0);
  for (int64_t i = problem.levels() - 1; i >= 0; --i) {
    const LevelName name(i);
    const TensorView& splits = problem.level(i);
    if (Status s = CheckSplitsShape(problem.op, name, splits); !s.ok()) return s;
    if (Status s = CheckSplits(problem.op, name, splits, rows, executor); !s.ok()) return s;
    rows = splits.dim(0) - 1;
  }
  return {};
}

// Where the elements are cut. Element r has the rows [begin(i, r), begin(i, r + 1)) of its level i; the values count as
// the level after the last. Its splits of level i are copied to place begin(i, r) + r on, because every element before
// it has a 0 of its own.
template <class I>
class Cuts {
 public:
  explicit Cuts(const ToVariantProblem& problem) noexcept : problem_(problem) {
    if (!problem.batched) {
      first_level_ = 0;
    } else if (problem.levels() == 0) {
      elements_ = problem.values.dim(0);
    } else {
      elements_ = problem.level(0).dim(0) - 1;
    }
  }

  int64_t elements() const noexcept { return elements_; }
  // Whether the values of an element are rows. Otherwise they are one row, without the first dimension.
  bool has_rows() const noexcept { return problem_.levels() > 0; }
  // How many levels of splits an element has.
  int64_t levels() const noexcept { return std::max<int64_t>(problem_.levels() - first_level_, 0); }
  const I* splits(int64_t i) const noexcept { return problem_.level(first_level_ + i).template As<I>(); }
  int64_t rows(int64_t i) const noexcept { return problem_.level(first_level_ + i).dim(0) - 1; }
  int64_t places(int64_t i) const noexcept { return rows(i) + elements_; }

  // The first row of element r in level i. Looks it up through all levels above.
  int64_t begin(int64_t i, int64_t r) const noexcept {
    if (!problem_.batched) return r == 0 ? 0 : i < levels() ? rows(i) : problem_.values.dim(0);
    if (problem_.levels() == 0) return r;
    int64_t row = problem_.level(0).As<I>()[r];
    for (int64_t above = 0; above < i; ++above) row = splits(above)[row];
    return row;
  }

 private:
  const ToVariantProblem& problem_;
  int64_t elements_ = 1;
  int64_t first_level_ = 1;
};

template <class I>
void CopyLevel(const Cuts<I>& cuts, int64_t level, I* to, Executor& executor) noexcept {
  using Unsigned = std::make_unsigned_t<I>;
  const I* const from = cuts.splits(level);
  const int64_t places = cuts.places(level);
  const auto begin_of = [&](int64_t r) { return cuts.begin(level, r) + r; };
  const int64_t cost = CopyCost(places, sizeof(I), cuts.elements());
  ForEachChunk(executor, SplitCopy(executor, places, cost), [&](int64_t, int64_t begin, int64_t end) {
    ForEachRun(cuts.elements(), begin_of, begin, end, [&](int64_t r, int64_t at, int64_t count) {
      const I first = from[cuts.begin(level, r)];
      for (int64_t i = 0; i < count; ++i) to[at + i] = static_cast<I>(Unsigned(from[at - r + i]) - Unsigned(first));
    });
  });
}

template <class I>
Result<Tensor> CopySplits(const Cuts<I>& cuts, const Context& ctx) noexcept {
  int64_t places = 0;
  bool overflow = false;
  for (int64_t i = 0; i < cuts.levels(); ++i) overflow |= __builtin_add_overflow(places, cuts.places(i), &places);
  if (overflow) return Status(Code::kResourceExhausted, "no memory for the splits of the elements");
  Result<Tensor> output = AllocateOutput(ctx, 1, kDTypeOf<I>, Shape{places});
  if (!output.ok()) return output;
  I* to = output->As<I>();
  for (int64_t i = 0; i < cuts.levels(); to += cuts.places(i++)) CopyLevel(cuts, i, to, ExecutorOf(ctx));
  return output;
}

// Writes views of the splits of element r, outermost first. `splits` has those of all elements.
template <class I>
void SliceSplits(const Cuts<I>& cuts, int64_t r, const Tensor& splits, TensorView* slices) noexcept {
  const I* level = splits.As<I>();
  for (int64_t i = 0; i < cuts.levels(); level += cuts.places(i++)) {
    const int64_t begin = cuts.begin(i, r);
    slices[i] = TensorView::Of(level + begin + r, Shape{cuts.begin(i, r + 1) - begin + 1});
  }
}

// The values of element r of a batch. `row_bytes` is the size of one row of `values`.
template <class I>
TensorView SliceValues(const Cuts<I>& cuts, int64_t r, const Tensor& values, size_t row_bytes) noexcept {
  const int64_t begin = cuts.begin(cuts.levels(), r);
  TensorView slice = values.view();
  if (slice.data != nullptr) slice.data = values.As<char>() + static_cast<size_t>(begin) * row_bytes;
  slice.shape = cuts.has_rows() ? Shape::WithDim0(cuts.begin(cuts.levels(), r + 1) - begin, values.shape().tail())
                                : Shape(values.shape().tail());
  return slice;
}

template <class I>
Result<VariantArray> Cut(const ToVariantProblem& problem, const Context& ctx) noexcept {
  const Cuts<I> cuts(problem);
  Result<Tensor> values = Copy(problem.op, "rt_dense_values", 0, problem.values, ctx);
  if (!values.ok()) return values.status();
  Result<Tensor> splits = CopySplits(cuts, ctx);
  if (!splits.ok()) return splits.status();

  const int64_t n = cuts.elements();
  Result<List<TensorView>> split_views = List<TensorView>::Make(ctx.allocator, n * cuts.levels());
  if (!split_views.ok()) return split_views.status();
  auto elements = List<std::optional<RaggedView>>::Make(ctx.allocator, n);
  if (!elements.ok()) return elements.status();
  const size_t levels = static_cast<size_t>(cuts.levels());
  const size_t row_bytes =
      static_cast<size_t>(Shape::Product(values->shape().tail()).value_or(0)) * DTypeSize(values->dtype());
  Executor& executor = ExecutorOf(ctx);
  FirstError no_memory;
  const Chunks chunks = SplitEvenly(executor, n, kDescribeGrain, kCopyChunksPerWorker);
  ForEachChunk(executor, chunks, [&](int64_t, int64_t from, int64_t to) {
    for (int64_t r = from; r < to; ++r) {
      TensorView* const own_splits = split_views->span().data() + static_cast<size_t>(r) * levels;
      SliceSplits(cuts, r, *splits, own_splits);
      TensorView slice = problem.batched ? SliceValues(cuts, r, *values, row_bytes) : values->view();
      if (!slice.shape.valid()) no_memory.Report(r);
      (*elements)[r].emplace(RaggedView{{own_splits, levels}, std::move(slice)});
    }
  });
  if (no_memory.found()) return MakeError(Code::kResourceExhausted, problem.op, ": no memory for a shape");
  return VariantArray(problem.batched ? Shape{n} : Shape{}, *std::move(values), *std::move(splits),
                      *std::move(split_views), *std::move(elements));
}

}  // namespace

Result<VariantArray> ToVariant(const ToVariantProblem& problem, const Context& ctx) noexcept {
  const Result<HostSplits> splits = HostSplits::Make(problem, ctx);
  if (!splits.ok()) return splits.status();
  ToVariantProblem with_host_splits = problem;
  with_host_splits.splits = splits->views();
  if (Status s = CheckLevels(with_host_splits, ExecutorOf(ctx)); !s.ok()) return s;
  const DType type = problem.levels() == 0 ? DType::kInt64 : problem.level(0).dtype;
  return Visit(IndexTypes{}, type, [&]<class I>() -> Result<VariantArray> { return Cut<I>(with_host_splits, ctx); });
}

}  // namespace raggrad::ragged_variant::on_cpu
