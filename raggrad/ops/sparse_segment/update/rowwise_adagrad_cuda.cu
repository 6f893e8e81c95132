// RowwiseAdagrad on a GPU: one warp for each row, which it reads twice.
#include "raggrad/cuda/arithmetic.cuh"
#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_segment/grad/row_sink.cuh"
#include "raggrad/ops/sparse_segment/update/optimizer_job.h"
#include "raggrad/ops/sparse_segment/update/rowwise_adagrad.h"

namespace raggrad::sparse_segment::on_cuda {
namespace {

using cuda::Add, cuda::Call, cuda::Divide, cuda::Multiply;

constexpr int kThreads = cuda::kTuning.item_threads_per_block;
static_assert(kSquareLanes == cuda::kWarp && kThreads % kSquareLanes == 0);

template <class G, class W, class Idx, class A = SumType<G>>
__global__ void RowwiseAdagradKernel(const G* gradient, const Idx* table_rows, int64_t rows, const PaddedReport* report,
                                     OptimizerJob<A> job) {
  const int64_t i = cuda::GlobalThread() / kSquareLanes;
  if (i >= rows) return;  // all lanes of the warp
  if (report != nullptr && (report->fault != PaddedReport::kNoFault || i >= static_cast<int64_t>(report->count)))
    return;
  const int64_t row = static_cast<int64_t>(table_rows[i]), width = job.width;
  const auto value = [&](int64_t column) { return Add(cuda::Widen(gradient[i * width + column]), A{0}); };
  A squares = 0;
  for (int64_t c = cuda::Lane(); c < width; c += kSquareLanes) squares = Add(squares, Multiply(value(c), value(c)));
  for (int half = kSquareLanes / 2; half > 0; half /= 2) {
    squares = Add(squares, __shfl_down_sync(cuda::kAllLanes, squares, half));
  }
  squares = __shfl_sync(cuda::kAllLanes, squares, 0);
  const A sum = Add(job.state1[row], Divide(squares, static_cast<A>(width)));
  __syncwarp();  // every lane has read the old sum
  if (cuda::Lane() == 0) job.state1[row] = sum;
  const A rate = Divide(Rate(job), Add(sqrt(cuda::Flush(sum)), job.epsilon));
  W* const weights = static_cast<W*>(job.table) + row * width;
  for (int64_t c = cuda::Lane(); c < width; c += kSquareLanes) {
    weights[c] = cuda::Narrow<W>(Add(cuda::Widen(weights[c]), -Multiply(rate, value(c))));
  }
}

}  // namespace

Status ApplyRowwiseAdagrad(const SparseSegmentGradV2Output& rows, const UpdateProblem& problem, int64_t width,
                           const PaddedReport* report, const Context& ctx) noexcept {
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  const int64_t count = rows.output.shape()[0];
  if (count == 0) return {};
  return Visit(FloatTypes{}, rows.output.dtype(), [&]<class G>() {
    using A = SumType<G>;
    OptimizerJob<A> job = ReadOptimizer<A>(problem.update);
    job.table = problem.table.data;
    job.width = width;
    return Visit(TableTypes<A>{}, problem.table.dtype, [&]<class W>() {
      return Visit(IndexTypes{}, rows.sorted_unique_indices.dtype(), [&]<class Idx>() {
        return call->Launch(RowwiseAdagradKernel<G, W, Idx>, cuda::Blocks(count, kThreads / kSquareLanes), kThreads,
                            rows.output.template As<G>(), rows.sorted_unique_indices.template As<Idx>(), count, report,
                            job);
      });
    });
  });
}

}  // namespace raggrad::sparse_segment::on_cuda
