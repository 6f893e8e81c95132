// GPU backend of the weights' gradient: a pass over the rows for the dot products, one over the segments for what comes
// through the divisor, one over the weights.
#include "raggrad/ops/sparse_segment/forward/check_ids_cuda.cuh"
#include "raggrad/ops/sparse_segment/grad/row_sink.cuh"
#include "raggrad/ops/sparse_segment/weights/device_weights.cuh"
#include "raggrad/ops/sparse_segment/weights/dot_rows.h"
#include "raggrad/ops/sparse_segment/weights/segment_runs.cuh"

namespace raggrad::sparse_segment::on_cuda {
namespace {

constexpr int kThreads = cuda::kTuning.item_threads_per_block;

template <class T>
struct DeviceDotJob {
  const T* grad;  // [segments, width]
  const T* data;  // [table_rows, width]
  int64_t width;
  Ids indices;      // in range
  Ids segment_ids;  // in range
  int64_t n;
  SumType<T>* dots;  // [n]
};

// Sets dots[i] to the dot product of grad[segment_ids[i]] and data[indices[i]], in the order of sparse_segment.h. A
// team of lanes has an id. A lane has kColumns neighbours of every kDotLanes columns, hence as many partial sums.
template <int kColumns, class T>
__global__ void __launch_bounds__(kThreads) DotKernel(const DeviceDotJob<T> job) {
  using A = SumType<T>;
  constexpr int kLanes = static_cast<int>(kDotLanes) / kColumns;
  const int64_t id = cuda::GlobalThread() / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  A sums[kColumns] = {};
  if (id < job.n) {
    const T* const grad = job.grad + job.segment_ids[id] * job.width;
    const T* const row = job.data + job.indices[id] * job.width;
#pragma unroll 4
    for (int64_t c = lane * kColumns; c < job.width; c += kDotLanes) {
      const auto g = Load<kColumns>(grad + c), x = Load<kColumns>(row + c);
      for (int k = 0; k < kColumns; ++k) {
        sums[k] = cuda::Add(sums[k], cuda::Multiply(cuda::Widen(g.values[k]), cuda::Widen(x.values[k])));
      }
    }
  }
#pragma unroll
  for (int half = static_cast<int>(kDotLanes) / 2; half > 0; half /= 2) {
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      if (half >= kColumns) {
        sums[k] = cuda::Add(sums[k], __shfl_down_sync(cuda::kAllLanes, sums[k], half / kColumns, kLanes));
      } else if (k < half) {
        sums[k] = cuda::Add(sums[k], sums[k + half]);
      }
    }
  }
  if (id < job.n && lane == 0) job.dots[id] = sums[0];
}

// Divisor of a segment, and what is subtracted from the dot products of its ids: T(s) of sparse_segment.h, for SqrtN
// divided by D(s) once more.
template <class A>
struct SegmentSlope {
  A divisor;
  A through;
};

template <class A>
struct SlopesJob {
  SegmentCombiner combiner;
  WeightDivisor divisor;
  DeviceWeights weights;
  Ids segment_ids;
  int64_t n;
  const A* dots;            // [n]
  SegmentSlope<A>* slopes;  // [segments]; unused for Sum
  void* output;             // [n], in the type of weights
};

// A block for every kRunIds ids.
template <class A, bool kOrderFree>
__global__ void SlopesKernel(const SlopesJob<A> job, int64_t num_segments) {
  using Pair = Terms<A, 2>;  // of the divisor, and of the sum of weights times dot products
  const SegmentRuns runs = {job.segment_ids, job.n, num_segments};
  SumSegments<A, 2, kOrderFree>(
      runs,
      [&](uint32_t i) {
        const A weight = job.weights.template Get<A>(i);
        return Pair{DivisorTerm(job.combiner, weight), cuda::Multiply(weight, job.dots[i])};
      },
      [&](uint32_t segment, const Pair& sums, int64_t length) {
        SegmentSlope<A> slope = {};
        if (job.divisor == WeightDivisor::kCount) {
          slope.divisor = CountDivisor<A>(job.combiner, length);
        } else {
          slope.divisor = WeightsDivisor(job.combiner, sums.of[0]);
          slope.through = cuda::Divide(sums.of[1], slope.divisor);
          if (job.combiner == SegmentCombiner::kSqrtN) slope.through = cuda::Divide(slope.through, slope.divisor);
        }
        job.slopes[segment] = slope;
      });
}

template <class A>
__device__ A WeightGradient(const SlopesJob<A>& job, int64_t i) {
  const A dot = job.dots[i];
  if (job.combiner == SegmentCombiner::kSum) return dot;
  const SegmentSlope<A> slope = job.slopes[job.segment_ids[i]];
  if (job.divisor == WeightDivisor::kCount) return cuda::Divide(dot, slope.divisor);
  if (slope.divisor == A{0}) return 0;
  const A through = job.combiner == SegmentCombiner::kMean
                        ? slope.through
                        : cuda::Multiply(job.weights.template Get<A>(i), slope.through);
  return cuda::Divide(cuda::Add(dot, -through), slope.divisor);
}

// One thread for each id. The dot products may lie in the output.
template <class A>
__global__ void FinishKernel(const SlopesJob<A> job) {
  const int64_t i = cuda::GlobalThread();
  if (i >= job.n) return;
  const A gradient = WeightGradient(job, i);
  if constexpr (std::is_same_v<A, double>) {
    if (job.weights.dtype == DType::kFloat64) {
      static_cast<double*>(job.output)[i] = gradient;
    } else {
      static_cast<float*>(job.output)[i] = static_cast<float>(gradient);
    }
  } else if (job.weights.dtype == DType::kFloat32) {
    static_cast<float*>(job.output)[i] = gradient;
  } else if (job.weights.dtype == DType::kHalf) {
    static_cast<Half*>(job.output)[i] = cuda::Narrow<Half>(gradient);
  } else {
    static_cast<BFloat16*>(job.output)[i] = cuda::Narrow<BFloat16>(gradient);
  }
}

template <class T>
Status QueueDots(const Call& call, const DeviceDotJob<T>& job) noexcept {
  constexpr int kColumns = 16 / sizeof(T);
  const auto aligned = [](const void* array) { return reinterpret_cast<uintptr_t>(array) % 16 == 0; };
  if (job.width % kColumns == 0 && aligned(job.grad) && aligned(job.data)) {
    const unsigned blocks = cuda::Blocks(job.n, kThreads * kColumns / kDotLanes);
    return call.Launch(DotKernel<kColumns, T>, blocks, kThreads, job);
  }
  return call.Launch(DotKernel<1, T>, cuda::Blocks(job.n, kThreads / kDotLanes), kThreads, job);
}

// For ids that are known to be valid.
template <class T>
Result<Tensor> WeightsGradOf(const Call& call, const WeightsGradProblem& p) noexcept {
  using A = SumType<T>;
  const ForwardProblem& f = p.forward;
  const TensorView& values = f.weights->values;
  Result<Tensor> output = cuda::AllocateOutput(call, 0, values.dtype, Shape{f.n()});
  if (!output.ok() || f.n() == 0) return output;
  const bool in_place = values.dtype == kDTypeOf<A>;
  Result<Scratch<A>> scratch = Scratch<A>::Make(call.device_memory(), in_place ? 0 : f.n());
  if (!scratch.ok()) return scratch.status();
  A* const dots = in_place ? output->As<A>() : scratch->data();
  const DeviceDotJob<T> dot_job = {.grad = p.grad.As<T>(),
                                   .data = f.data.As<T>(),
                                   .width = Shape::Product(f.data.shape.tail()).value_or(0),
                                   .indices = Ids(f.indices),
                                   .segment_ids = Ids(f.segment_ids),
                                   .n = f.n(),
                                   .dots = dots};
  if (Status s = QueueDots(call, dot_job); !s.ok()) return s;

  const bool divides = f.combiner != SegmentCombiner::kSum;
  if (!divides && in_place) return output;
  const int64_t segments = p.grad.dim(0);
  Result<Scratch<SegmentSlope<A>>> slopes =
      Scratch<SegmentSlope<A>>::Make(call.device_memory(), divides ? segments : 0);
  if (!slopes.ok()) return slopes.status();
  const SlopesJob<A> job = {.combiner = f.combiner,
                            .divisor = f.weights->divisor,
                            .weights = DeviceWeights(values),
                            .segment_ids = Ids(f.segment_ids),
                            .n = f.n(),
                            .dots = dots,
                            .slopes = slopes->data(),
                            .output = output->data()};
  if (divides) {
    const bool order_free = call.ctx.accumulation == Accumulation::kReproducible;
    const auto kernel = order_free ? &SlopesKernel<A, true> : &SlopesKernel<A, false>;
    if (Status s = call.Launch(kernel, cuda::Blocks(f.n(), kRunIds), kRunThreads, job, segments); !s.ok()) return s;
  }
  if (Status s = call.Launch(FinishKernel<A>, cuda::Blocks(f.n(), kThreads), kThreads, job); !s.ok()) return s;
  return output;
}

// Checks ids as the forward does, with the rows of grad as num_segments.
template <class Idx, class Seg>
Status CheckIds(const UncapturedCall& call, const ForwardProblem& p) noexcept {
  uint64_t found[Found::kWords] = {};
  if (p.n() > 0) {
    if (Status s = Look<Idx, Seg>(call, p, found); !s.ok()) return s;
  }
  const auto last = static_cast<Seg>(found[Found::kLast]);
  const Result<int64_t> rows = OutputRows<Idx>(p, last);
  if (!rows.ok()) return rows.status();
  const bool fault = found[Found::kFault] != 0 || last >= *rows;
  return p.n() > 0 && fault ? Fault<Idx, Seg>(call, p, *rows) : Status();
}

Status CheckIdsOf(const ForwardProblem& p, const Context& ctx) noexcept {
  const Result<UncapturedCall> call = UncapturedCall::Begin(ctx);
  if (!call.ok()) return call.status();
  return Visit(IndexTypes{}, p.indices.dtype, [&]<class Idx>() {
    return Visit(IndexTypes{}, p.segment_ids.dtype, [&]<class Seg>() { return CheckIds<Idx, Seg>(*call, p); });
  });
}

}  // namespace

Result<Tensor> WeightsGrad(const WeightsGradProblem& problem, const Context& ctx) noexcept {
  if (!problem.forward.ids_checked) {
    if (Status s = CheckIdsOf(problem.forward, ctx); !s.ok()) return s;
  }
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  return Visit(FloatTypes{}, problem.forward.data.dtype, [&]<class T>() { return WeightsGradOf<T>(*call, problem); });
}

}  // namespace raggrad::sparse_segment::on_cuda
