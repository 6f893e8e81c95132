#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "raggrad/core/operands.h"
#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/first_error.h"
#include "raggrad/cuda/batched_copy.h"
#include "raggrad/cuda/host_copy.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/ragged_variant/kernels.h"
#include "raggrad/ops/ragged_variant/splits.h"
#include "raggrad/ops/ragged_variant/values.h"

namespace raggrad::ragged_variant::on_cpu {
namespace {

using cpu::FirstError;
using cpu::ForEachChunk;
using cpu::SplitEvenly;

struct Layout {
  Scratch<Piece> pieces;  // of the output
  Shape shape;
};

// Counts the values of each element. Nearly all elements are valid, and for the usual kinds a few loads are enough to
// see that and to count. CountValues, which takes several times as long, is called only for the others.
template <class I>
class Counts {
 public:
  // While the numbers in row_splits are unchecked, counts of missing elements may be wrong, but never negative.
  Counts(const GradProblem& problem, const TensorView& row_splits) noexcept
      : problem_(problem),
        splits_(row_splits.As<I>(), row_splits.rank() == 0 ? 0 : static_cast<size_t>(row_splits.dim(0))) {
    const int64_t inner = Shape::Product(problem.dense_shape.tail()).value_or(0);
    if (problem.dense_shape.rank() == 0 || inner == 0) return;
    inner_ = inner;
    rows_limit_ = static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / inner) + 1;
  }

  // Calls f(i, data, count) for the elements from `begin` to the first faulty one, or to `end`, and returns where it
  // stopped. The data of a missing element is null.
  template <class F>
  int64_t ForEach(int64_t begin, int64_t end, const F& f) const noexcept {
    const auto elements = problem_.elements;  // copied, so the compiler knows that writes of f cannot change them
    const DType dtype = problem_.dtype;
    const Device device = problem_.device;
    for (int64_t i = begin; i < end; ++i) {
      const std::optional<RaggedView>& element = elements[static_cast<size_t>(i)];
      const TensorView* const values = element ? &element->values : nullptr;
      int64_t count = values != nullptr ? OfUsual(*values, dtype, device) : OfMissing(i);
      if (count < 0) {
        const Result<int64_t> checked = CountValues(problem_, i, rows(i));
        if (!checked.ok()) return i;
        count = *checked;
      }
      f(i, values != nullptr ? values->data : nullptr, count);
    }
    return end;
  }

  Status FaultOf(int64_t i) const noexcept { return CountValues(problem_, i, rows(i)).status(); }

  std::optional<int64_t> rows(int64_t i) const noexcept {
    const size_t row = static_cast<size_t>(i);
    if (row + 1 >= splits_.size()) return std::nullopt;
    return static_cast<int64_t>(static_cast<uint64_t>(splits_[row + 1]) - static_cast<uint64_t>(splits_[row]));
  }

 private:
  // These two return -1 if CountValues has to decide.
  static int64_t OfUsual(const TensorView& values, DType dtype, Device device) noexcept {
    if (values.dtype != dtype || values.device != device || !IsReadable(values)) return -1;
    return *values.shape.NumElements();
  }
  int64_t OfMissing(int64_t i) const noexcept {
    const int64_t count = rows(i).value_or(-1);
    return static_cast<uint64_t>(count) < rows_limit_ ? count * inner_ : -1;
  }

  const GradProblem& problem_;
  const std::span<const I> splits_;
  int64_t inner_ = 0;  // values in one row of a missing element
  uint64_t rows_limit_ = 0;
};

template <class I>
Result<Layout> LayOut(const GradProblem& problem, const Counts<I>& counts, const Context& host) noexcept {
  Result<Scratch<Piece>> pieces = Scratch<Piece>::Make(host, problem.n());
  if (!pieces.ok()) return pieces.status();

  Executor& executor = ExecutorOf(host);
  FirstError fault;
  ForEachChunk(executor, SplitEvenly(executor, problem.n(), kElementGrain), [&](int64_t, int64_t begin, int64_t end) {
    Piece* const out = pieces->data();
    const int64_t stop = counts.ForEach(begin, end, [=](int64_t i, const void* data, int64_t count) {
      out[i] = {data, count};
    });
    if (stop < end) fault.Report(stop);
  });
  if (fault.found()) return counts.FaultOf(fault.position());

  const auto size = [&](int64_t i) -> int64_t& { return (*pieces)[i].begin; };
  const std::optional<int64_t> total = SizesToBegins(problem.n(), size);
  Result<Shape> shape = OutputShape(problem, total, counts.rows(0));
  if (!shape.ok()) return shape.status();
  return Layout{*std::move(pieces), *std::move(shape)};
}

// Joins several elements in device memory into a result of shape dense_values_shape. Fails if any element is faulty;
// LayOut then finds out which.
template <class I>
Result<Tensor> JoinOnDevice(const GradProblem& problem, const Counts<I>& counts, const Context& ctx) noexcept {
  const auto write = [&](int64_t begin, int64_t end, Piece* pieces) -> int64_t {
    int64_t next = 0;
    bool overflow = false;
    const int64_t stop = counts.ForEach(begin, end, [&](int64_t i, const void* data, int64_t count) {
      pieces[i - begin] = {data, next};
      overflow |= __builtin_add_overflow(next, count, &next);
    });
    return stop < end || overflow ? -1 : next;
  };
  return cuda::WithKernels<cuda::BatchedCopy>(problem.op, problem.device, [&](const cuda::BatchedCopy& kernels) {
    return kernels.join(problem.n(), write, ExecutorOf(ctx), 0, problem.dtype, problem.dense_shape, ctx);
  });
}

// On a GPU the copy is queued before row_splits is checked, so that both happen at once. A fault drops the copy.
template <class I>
Result<Tensor> CheckAndJoin(const GradProblem& problem, const TensorView& row_splits, const Context& ctx) noexcept {
  const Counts<I> counts(problem, row_splits);
  const bool queued = problem.device.is_cuda() && problem.n() > 1;
  Result<Tensor> joined = queued ? JoinOnDevice(problem, counts, ctx) : Tensor();
  if (row_splits.rank() != 0) {
    if (Status s = CheckSplits(problem.op, "row_splits", row_splits, {}, ExecutorOf(ctx)); !s.ok()) return s;
  }
  if (queued && joined.ok()) return joined;
  const Result<Layout> layout = LayOut(problem, counts, ctx);
  if (!layout.ok()) return layout.status();
  if (queued) return joined;
  return Join(
      problem.op, problem.device,
      {"encoded_ragged_grad", 0, {layout->pieces.data(), problem.elements.size()}, problem.dtype, layout->shape}, ctx);
}

}  // namespace

Result<Tensor> ToVariantGradient(const GradProblem& problem, const Context& ctx) noexcept {
  TensorView row_splits = problem.row_splits;
  Result<Tensor> copy = Tensor();
  if (row_splits.rank() != 0 && !row_splits.device.is_cpu()) {
    copy = cuda::CopyToHost(problem.op, row_splits, ctx);
    if (!copy.ok()) return copy.status();
    row_splits = copy->view();
  }
  return Visit(IndexTypes{}, row_splits.dtype,
               [&]<class I>() -> Result<Tensor> { return CheckAndJoin<I>(problem, row_splits, ctx); });
}

}  // namespace raggrad::ragged_variant::on_cpu
