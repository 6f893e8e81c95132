// Updates a table by rows that are known to be different: a team of lanes for each row, some neighbouring columns a
// lane.
#include <bit>

#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_segment/grad/sum_rows.cuh"
#include "raggrad/ops/sparse_segment/plan/plan_cuda.cuh"
#include "raggrad/ops/sparse_segment/update/apply_coalesced.cuh"

namespace raggrad::sparse_segment::on_cuda {
namespace {

constexpr int kThreads = cuda::kTuning.item_threads_per_block;

template <class T, int kColumns>
__global__ void ApplyCoalescedKernel(const SumJob<T> job, const Ids rows, int64_t table_rows, int lanes) {
  const int64_t i = cuda::GlobalThread() / lanes;
  if (i >= job.n) return;
  const int64_t row = rows[i];
  if (!InRange(row, table_rows)) return;
  for (int64_t column = threadIdx.x % lanes * kColumns; column < job.width; column += lanes * kColumns) {
    const Columns<T, kColumns> values = Load<kColumns>(job.grad + i * job.width + column);
    SumType<T> gradient[kColumns];
    for (int c = 0; c < kColumns; ++c) gradient[c] = cuda::Widen(values.values[c]);
    job.sink.template Take<kColumns, true>(0, static_cast<uint32_t>(row), column, job.width, gradient);
  }
}

}  // namespace

Status ApplyCoalesced(const GradProblem& p, const UpdateProblem& update, const Context& ctx) noexcept {
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  return Visit(FloatTypes{}, p.grad.dtype, [&]<class T>() {
    SumJob<T> job = {};
    job.grad = p.grad.As<T>();
    job.width = p.width;
    job.n = p.ids.n();
    job.sink = UpdateSink<T>(update, p.width);
    return sum_rows_internal::WithColumns<T, true, 16 / sizeof(T)>(job, [&]<int kColumns>() {
      const auto strips = static_cast<uint64_t>((p.width + kColumns - 1) / kColumns);
      const int lanes = static_cast<int>(std::bit_ceil(std::min<uint64_t>(strips, cuda::kWarp)));
      return call->Launch(ApplyCoalescedKernel<T, kColumns>, cuda::Blocks(p.ids.n(), kThreads / lanes), kThreads, job,
                          Ids(p.ids.indices), p.ids.table_rows, lanes);
    });
  });
}

}  // namespace raggrad::sparse_segment::on_cuda
