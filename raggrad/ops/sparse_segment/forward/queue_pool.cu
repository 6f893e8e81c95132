#include <bit>

#include "raggrad/ops/sparse_segment/forward/forward_checks.h"
#include "raggrad/ops/sparse_segment/forward/pool_float_rows.cuh"
#include "raggrad/ops/sparse_segment/forward/pool_rows.cuh"
#include "raggrad/ops/sparse_segment/forward/queue_pool.cuh"
#include "raggrad/ops/sparse_segment/weights/weights_cuda.cuh"

namespace raggrad::sparse_segment::on_cuda {
namespace {

using cuda::Blocks;

template <int V, class T, class Indices>
Status Pool(const Call& call, const PoolJob<T, Indices>& job) noexcept {
  const auto strips = static_cast<uint64_t>((job.width + V - 1) / V);
  const int lanes = static_cast<int>(std::bit_ceil(std::min<uint64_t>(strips, kPoolMaxLanes)));
  const int64_t columns_at_once = (static_cast<int64_t>(strips) + lanes - 1) / lanes;
  const dim3 grid(Blocks(job.num_segments, kPoolThreads / lanes),
                  static_cast<unsigned>(std::min(columns_at_once, cuda::kMaxGridY)));
  return call.Launch(PoolKernel<V, T, Indices>, grid, kPoolThreads, job, lanes);
}

// With weights, or reproducibly.
template <class T>
Status PoolFloats(const Call& call, const ForwardProblem& p, const PoolIds& ids, int64_t width,
                  Tensor& output) noexcept {
  const bool reproducible = call.ctx.accumulation == Accumulation::kReproducible;
  const Result<Scratch<SumType<T>>> divisors =
      reproducible ? QueueDivisors<SumType<T>>(call, p, ids.num_segments) : Scratch<SumType<T>>();
  if (!divisors.ok()) return divisors.status();
  const FloatPoolJob<T> job = {.combiner = p.combiner,
                               .data = p.data.As<T>(),
                               .width = width,
                               .indices = ids.indices,
                               .starts = ids.starts,
                               .num_segments = ids.num_segments,
                               .output = output.As<T>(),
                               .weights = p.weights != nullptr ? DeviceWeights(p.weights->values) : DeviceWeights(),
                               .divisor = p.weights != nullptr ? p.weights->divisor : WeightDivisor{},
                               .divisors = divisors->data()};
  return reproducible ? PoolReproducibly(call, job) : PoolWeighted(call, job);
}

template <class T>
Status PoolRows(const Call& call, const ForwardProblem& p, const PoolIds& ids, Tensor& output) noexcept {
  const int64_t width = *Shape::Product(p.data.shape.tail());
  if constexpr (Contains(FloatTypes{}, kDTypeOf<T>)) {  // integers have no weights, and one sum in any order
    if (p.weights != nullptr || call.ctx.accumulation == Accumulation::kReproducible) {
      return PoolFloats<T>(call, p, ids, width, output);
    }
  }
  constexpr int kVector = 16 / sizeof(T);
  const bool aligned = width % kVector == 0 && reinterpret_cast<uintptr_t>(p.data.data) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(output.data()) % 16 == 0;
  return ids.indices.Visit([&]<class Indices>(const Indices& indices) {
    const PoolJob<T, Indices> job = {p.combiner, p.data.As<T>(),   width,         indices,
                                     ids.starts, ids.num_segments, output.As<T>()};
    return aligned ? Pool<kVector>(call, job) : Pool<1>(call, job);
  });
}

}  // namespace

Status QueuePool(const Call& call, const ForwardProblem& p, const PoolIds& ids, Tensor& output) noexcept {
  return Visit(SumTypes{}, p.data.dtype,
               [&]<class T>() { return PoolRows<typename RowType<T>::type>(call, p, ids, output); });
}

Result<Tensor> AllocateRows(const Call& call, const ForwardProblem& p, int64_t num_segments) noexcept {
  const Result<Shape> shape = OutputShape(p, num_segments);
  if (!shape.ok()) return shape.status();
  return cuda::AllocateOutput(call, 0, p.data.dtype, *shape);
}

Status PoolInto(const Call& call, const ForwardProblem& p, int64_t num_segments, Tensor& output) noexcept {
  if (output.bytes() == 0) return {};
  if (p.n() == 0) return call.Fill(output.data(), 0, output.bytes());
  const Result<Scratch<int64_t>> found =
      p.starts == nullptr ? FindStarts(call, Ids(p.segment_ids), p.n(), num_segments) : Scratch<int64_t>();
  if (!found.ok()) return found.status();
  const int64_t* const starts = p.starts == nullptr ? found->data() : p.starts;
  return QueuePool(call, p, {Ids(p.indices), starts, num_segments}, output);
}

}  // namespace raggrad::sparse_segment::on_cuda
