// Whether a plan was made from given ids.
#include <algorithm>

#include "raggrad/core/operands.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/first_error.h"
#include "raggrad/cuda/host_copy.h"
#include "raggrad/cuda/loader.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/plan/plan_state.h"

namespace raggrad {
namespace {

using cpu::FirstError;
using cpu::ForEachChunk;
using cpu::SplitEvenly;
using sparse_segment::on_cuda::Kernels;

constexpr std::string_view kOp = "SegmentPlan";
constexpr int64_t kGrain = 1 << 14;  // ids per chunk at least

// The first position where the ids differ from the planned ones, or n.
Result<int64_t> FirstDifference(const TensorView& ids, const TensorView& planned, Executor& executor) noexcept {
  const int64_t n = ids.dim(0);
  FirstError difference;
  const Status visited = Visit(IndexTypes{}, ids.dtype, [&]<class Id>() -> Status {
    return Visit(IndexTypes{}, planned.dtype, [&]<class Planned>() -> Status {
      const Id* got = ids.As<Id>();
      const Planned* expected = planned.As<Planned>();
      ForEachChunk(executor, SplitEvenly(executor, n, kGrain), [&](int64_t, int64_t begin, int64_t end) {
        const int64_t found = std::mismatch(got + begin, got + end, expected + begin).first - got;
        if (found < end) difference.Report(found);
      });
      return {};
    });
  });
  if (!visited.ok()) return visited;
  return difference.found() ? difference.position() : n;
}

Result<int64_t> IdAt(const TensorView& ids, int64_t i, const Context& ctx) noexcept {
  return Visit(IndexTypes{}, ids.dtype, [&]<class Id>() -> Result<int64_t> {
    const Id* const id = ids.As<Id>() + i;
    if (ids.device.is_cpu()) return int64_t{*id};
    const Result<Tensor> copy = cuda::CopyToHost(kOp, {id, ids.dtype, Shape{}, ids.device}, ctx);
    if (!copy.ok()) return copy.status();
    return int64_t{*copy->As<Id>()};
  });
}

Status CheckSameIds(std::string_view name, const TensorView& ids, const TensorView& planned,
                    const Context& ctx) noexcept {
  const Result<int64_t> first = cuda::RunOnDevice<Kernels>(
      kOp, ids.device, [&] { return FirstDifference(ids, planned, ExecutorOf(ctx)); },
      [&](const Kernels& kernels) { return kernels.first_difference(ids, planned.As<int32_t>(), ctx); });
  if (!first.ok()) return first.status();
  if (*first == ids.dim(0)) return {};
  const Result<int64_t> expected = IdAt(planned, *first, ctx);
  if (!expected.ok()) return expected.status();
  const Result<int64_t> got = IdAt(ids, *first, ctx);
  if (!got.ok()) return got.status();
  return InvalidArgument(kOp, "the plan was made from other ", name, " [", name, "[", *first, "]: expected ", *expected,
                         ", got ", *got, "]");
}

}  // namespace

Status SegmentPlan::CheckMadeFrom(const TensorView& indices, const TensorView& segment_ids,
                                  const Context& ctx) const noexcept {
  if (Status s = sparse_segment::CheckIdOperands(kOp, indices, segment_ids); !s.ok()) return s;
  if (indices.dim(0) != state_->num_ids) {
    return InvalidArgument(kOp, "the plan was made from other ids [indices: expected ", state_->num_ids,
                           " elements, got ", indices.dim(0), "]");
  }
  if (Status s = CheckOperands(kOp, {{"plan", state_->indices_view()}, {"indices", indices}}); !s.ok()) return s;
  if (Status s = CheckSameIds("indices", indices, state_->indices_view(), ctx); !s.ok()) return s;
  return CheckSameIds("segment_ids", segment_ids, state_->segment_ids_view(), ctx);
}

}  // namespace raggrad
