// Host side of the GPU backend of the forwards. One kernel checks all ids, and the host reads its findings and the
// number of segments; a plan makes both unnecessary. A second kernel finds where segments begin, a third pools them.
#include <bit>

#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_segment/forward/check_ids_cuda.cuh"
#include "raggrad/ops/sparse_segment/forward/forward_checks.h"
#include "raggrad/ops/sparse_segment/forward/pool_float_rows.cuh"
#include "raggrad/ops/sparse_segment/forward/pool_rows.cuh"
#include "raggrad/ops/sparse_segment/weights/weights_cuda.cuh"

namespace raggrad::sparse_segment::on_cuda {
namespace {

using cuda::Blocks;
using cuda::Call;
using cuda::GlobalThread;
using cuda::UncapturedCall;

constexpr int kThreads = cuda::kTuning.item_threads_per_block;

// starts[s] = the first position whose segment id is at least s. Each thread bisects, so that neither a long segment
// nor a long gap between segments is slow.
template <class Seg>
__global__ void StartsKernel(const Seg* segment_ids, int64_t n, int64_t num_segments, int64_t* starts) {
  const int64_t s = GlobalThread();
  if (s > num_segments) return;
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (segment_ids[middle] < s) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  starts[s] = low;
}

template <class Seg>
Result<Scratch<int64_t>> FindStarts(const Call& call, const ForwardProblem& p, int64_t num_segments) noexcept {
  Result<Scratch<int64_t>> starts = Scratch<int64_t>::Make(call.device_memory(), num_segments + 1);
  if (!starts.ok()) return starts;
  const Status queued = call.Launch(StartsKernel<Seg>, Blocks(num_segments + 1, kThreads), kThreads,
                                    p.segment_ids.As<Seg>(), p.n(), num_segments, starts->data());
  if (!queued.ok()) return queued;
  return starts;
}

template <int V, class T, class Idx>
Status Pool(const Call& call, const PoolJob<T, Idx>& job) noexcept {
  const auto strips = static_cast<uint64_t>((job.width + V - 1) / V);
  const int lanes = static_cast<int>(std::bit_ceil(std::min<uint64_t>(strips, kPoolMaxLanes)));
  const int64_t columns_at_once = (static_cast<int64_t>(strips) + lanes - 1) / lanes;
  const dim3 grid(Blocks(job.num_segments, kPoolThreads / lanes),
                  static_cast<unsigned>(std::min(columns_at_once, cuda::kMaxGridY)));
  return call.Launch(PoolKernel<V, T, Idx>, grid, kPoolThreads, job, lanes);
}

template <class T, class Idx, class Seg>
Status PoolAll(const Call& call, const ForwardProblem& p, int64_t num_segments, Tensor& output) noexcept {
  const Result<Scratch<int64_t>> found =
      p.starts == nullptr ? FindStarts<Seg>(call, p, num_segments) : Scratch<int64_t>();
  if (!found.ok()) return found.status();
  const int64_t* const starts = p.starts == nullptr ? found->data() : p.starts;
  const int64_t width = *Shape::Product(p.data.shape.tail());
  const bool reproducible = call.ctx.accumulation == Accumulation::kReproducible;
  if constexpr (Contains(FloatTypes{}, kDTypeOf<T>)) {  // integers have no weights, and one sum in any order
    if (p.weights != nullptr || reproducible) {
      const Result<Scratch<SumType<T>>> divisors =
          reproducible ? QueueDivisors<SumType<T>>(call, p, num_segments) : Scratch<SumType<T>>();
      if (!divisors.ok()) return divisors.status();
      const FloatPoolJob<T> job = {.combiner = p.combiner,
                                   .data = p.data.As<T>(),
                                   .width = width,
                                   .indices = Ids(p.indices),
                                   .starts = starts,
                                   .num_segments = num_segments,
                                   .output = output.As<T>(),
                                   .weights = p.weights != nullptr ? DeviceWeights(p.weights->values) : DeviceWeights(),
                                   .divisor = p.weights != nullptr ? p.weights->divisor : WeightDivisor{},
                                   .divisors = divisors->data()};
      return reproducible ? PoolReproducibly(call, job) : PoolWeighted(call, job);
    }
  }
  const PoolJob<T, Idx> job = {p.combiner, p.data.As<T>(), width,         p.indices.As<Idx>(),
                               starts,     num_segments,   output.As<T>()};
  constexpr int kVector = 16 / sizeof(T);
  const bool aligned = width % kVector == 0 && reinterpret_cast<uintptr_t>(p.data.data) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(output.data()) % 16 == 0;
  return aligned ? Pool<kVector>(call, job) : Pool<1>(call, job);
}

Result<Tensor> AllocateRows(const Call& call, const ForwardProblem& p, int64_t num_segments) noexcept {
  const Result<Shape> shape = OutputShape(p, num_segments);
  if (!shape.ok()) return shape.status();
  return cuda::AllocateOutput(call, 0, p.data.dtype, *shape);
}

// For ids that are known to be valid.
template <class T, class Idx, class Seg>
Result<Tensor> PoolInto(const Call& call, const ForwardProblem& p, int64_t num_segments,
                        Result<Tensor> output) noexcept {
  if (!output.ok() || output->bytes() == 0) return output;
  const Status pooled =
      p.n() == 0 ? call.Fill(output->data(), 0, output->bytes()) : PoolAll<T, Idx, Seg>(call, p, num_segments, *output);
  if (!pooled.ok()) return pooled;
  return output;
}

template <class T, class Idx, class Seg>
Result<Tensor> CheckAndPool(const UncapturedCall& call, const ForwardProblem& p) noexcept {
  uint64_t found[Found::kWords] = {};
  if (p.n() > 0) {
    if (Status s = Look<Idx, Seg>(call, p, found); !s.ok()) return s;
  }
  const auto last = static_cast<Seg>(found[Found::kLast]);
  const Result<int64_t> num_segments = OutputRows<Idx>(p, last);
  if (!num_segments.ok()) return num_segments.status();
  Result<Tensor> output = AllocateRows(call, p, *num_segments);
  if (!output.ok()) return output;
  if (p.n() > 0 && (found[Found::kFault] != 0 || last >= *num_segments)) return Fault<Idx, Seg>(call, p, *num_segments);
  return PoolInto<T, Idx, Seg>(call, p, *num_segments, std::move(output));
}

}  // namespace

Result<Tensor> Forward(const ForwardProblem& problem, const Context& ctx) noexcept {
  if (problem.ids_checked) {
    const Result<Call> call = Call::Begin(ctx);
    if (!call.ok()) return call.status();
    return VisitTypes(problem, [&]<class T, class Idx, class Seg>() {
      const int64_t num_segments = *problem.num_segments;
      return PoolInto<T, Idx, Seg>(*call, problem, num_segments, AllocateRows(*call, problem, num_segments));
    });
  }
  const Result<UncapturedCall> call = UncapturedCall::Begin(ctx);
  if (!call.ok()) return call.status();
  return VisitTypes(problem,
                    [&]<class T, class Idx, class Seg>() { return CheckAndPool<T, Idx, Seg>(*call, problem); });
}

}  // namespace raggrad::sparse_segment::on_cuda
