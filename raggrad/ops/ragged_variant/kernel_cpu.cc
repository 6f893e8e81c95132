#include <utility>

#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/first_error.h"
#include "raggrad/cuda/cuda.h"
#include "raggrad/ops/ragged_variant/join.h"
#include "raggrad/ops/ragged_variant/kernels.h"

namespace raggrad::ragged_variant::cpu {
namespace {

using raggrad::cpu::FirstError;
using raggrad::cpu::ForEachChunk;
using raggrad::cpu::SplitEvenly;

struct Layout {
  Scratch<Piece> pieces;  // of the output
  Shape shape;
};

// Whether CountValues could only find fault with the number of the values. It takes several times as long to say so.
bool IsPlain(const Problem& problem, const TensorView& values) noexcept {
  return values.data != nullptr && values.dtype == problem.dtype && values.device == problem.device &&
         values.shape.valid();
}

template <class I>
Result<Layout> LayOut(const Problem& problem, std::span<const I> splits, const Context& host) noexcept {
  const auto rows = [&](int64_t i) -> std::optional<int64_t> {
    const size_t row = static_cast<size_t>(i);
    if (row + 1 >= splits.size()) return std::nullopt;
    return static_cast<int64_t>(splits[row + 1]) - static_cast<int64_t>(splits[row]);
  };
  Result<Scratch<Piece>> pieces = Scratch<Piece>::Make(host, problem.n());
  if (!pieces.ok()) return pieces.status();

  Parallel& parallel = host.executor();
  FirstError fault;
  ForEachChunk(parallel, SplitEvenly(parallel, problem.n(), kElementGrain), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::optional<RaggedView>& element = problem.elements[static_cast<size_t>(i)];
      std::optional<int64_t> count;
      if (element && IsPlain(problem, element->values)) count = element->values.shape.NumElements();
      if (!count) {
        const Result<int64_t> checked = CountValues(problem, i, rows(i));
        if (!checked.ok()) return fault.Report(i);
        count = *checked;
      }
      (*pieces)[i] = {element ? element->values.data : nullptr, *count};
    }
  });
  if (fault.found()) return CountValues(problem, fault.position(), rows(fault.position())).status();

  const auto size = [&](int64_t i) -> int64_t& { return (*pieces)[i].begin; };
  const std::optional<int64_t> total = SizesToBegins(problem.n(), size);
  Result<Shape> shape = OutputShape(problem, total, rows(0));
  if (!shape.ok()) return shape.status();
  return Layout{*std::move(pieces), *std::move(shape)};
}

}  // namespace

Result<Tensor> ToVariantGradient(const Problem& problem, const Context& ctx) noexcept {
  const Context host = HostContext(ctx, problem.device);
  TensorView row_splits = problem.row_splits;
  Result<Tensor> copy = Tensor();
  if (row_splits.rank() != 0 && row_splits.device != Device::kCpu) {
    copy = CopyTensor(row_splits, Device::kCpu, ctx);
    if (!copy.ok()) return copy.status();
    row_splits = copy->view();
  }
  if (row_splits.rank() != 0) {
    if (Status s = CheckSplits(problem.op, "row_splits", row_splits, {}, ctx.executor()); !s.ok()) return s;
  }
  const Result<Layout> layout = Visit(IndexTypes{}, row_splits.dtype, [&]<class I>() -> Result<Layout> {
    const size_t size = row_splits.rank() == 0 ? 0 : static_cast<size_t>(row_splits.dim(0));
    return LayOut(problem, std::span(row_splits.As<I>(), size), host);
  });
  if (!layout.ok()) return layout.status();
  return Join({problem.op,
               "encoded_ragged_grad",
               0,
               {layout->pieces.data(), problem.elements.size()},
               problem.dtype,
               layout->shape,
               problem.device},
              ctx);
}

}  // namespace raggrad::ragged_variant::cpu
