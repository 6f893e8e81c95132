// Pools rows with weights, in the order of summation that segment_pooling.h states: TensorFlow's segment_sum.
//
// A team of lanes pools a segment. Each lane has some neighbouring columns, and loads up to eight rows before it adds
// their products. A segment's sums are chains, so a very long segment is slow.
#include "raggrad/ops/sparse_segment/forward/pool_float_rows.cuh"
#include "raggrad/ops/sparse_segment/grad/row_sink.cuh"

namespace raggrad::sparse_segment::on_cuda {
namespace {

// These two define results.
constexpr int kSums = 4;  // partial sums of a segment of kSplit ids and more
constexpr int64_t kSplit = 16;

constexpr int kThreads = cuda::kTuning.pool_threads_per_block;
constexpr int kAtOnce = cuda::kTuning.pool_weighted_rows_in_flight;
static_assert(kAtOnce % kSums == 0);

// Indices of sums are known when the loops are unrolled, so all of them are registers.
template <int kColumns, class T>
struct WeightedSums {
  using A = SumType<T>;
  A of[kSums][kColumns];

  // Sums start at +0, but a single product is stored as it is, even if it is -0.
  __device__ explicit WeightedSums(int64_t ids) {
    for (auto& sum : of) {
      for (A& x : sum) x = ids == 1 ? -A{0} : A{0};
    }
  }
  __device__ void Add(int sum, const Columns<T, kColumns>& row, A weight) {
    for (int c = 0; c < kColumns; ++c) {
      of[sum][c] = cuda::Add(of[sum][c], cuda::Multiply(cuda::Widen(row.values[c]), weight));
    }
  }
  __device__ void Combine() {
    for (int sum = 1; sum < kSums; ++sum) {
      for (int c = 0; c < kColumns; ++c) of[0][c] = cuda::Add(of[0][c], of[sum][c]);
    }
  }
};

// Pools some columns of ids [begin, end), one or more.
template <int kColumns, class T>
__device__ Columns<T, kColumns> PoolSegment(const FloatPoolJob<T>& job, int64_t begin, int64_t end, int64_t column) {
  using A = SumType<T>;
  WeightedSums<kColumns, T> sums(end - begin);
  const int64_t split_end = end - begin >= kSplit ? begin + (end - begin) / kSums * kSums : begin;
  A divisor_sum = 0;
  for (int64_t id = begin; id < end; id += kAtOnce) {
    Packed<T, kColumns> rows[kAtOnce];
    A weights[kAtOnce];
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      if (id + r >= end) break;
      rows[r] = LoadPacked<kColumns>(job.row(id + r) + column);
      weights[r] = job.weights.template Get<A>(id + r);
    }
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      if (id + r >= end) break;
      const auto row = Unpack<T, kColumns>(rows[r]);
      if (id + r < split_end) {
        sums.Add(r % kSums, row, weights[r]);
      } else {
        if (id + r == split_end && split_end > begin) sums.Combine();
        sums.Add(0, row, weights[r]);
      }
      divisor_sum = cuda::Add(divisor_sum, DivisorTerm(job.combiner, weights[r]));
    }
  }
  if (split_end == end) sums.Combine();
  Columns<T, kColumns> pooled;
  const A divisor = job.divisor == WeightDivisor::kCount ? CountDivisor<A>(job.combiner, end - begin)
                                                         : WeightsDivisor(job.combiner, divisor_sum);
  for (int c = 0; c < kColumns; ++c) {
    const A sum = sums.of[0][c];
    pooled.values[c] = cuda::Narrow<T>(job.combiner == SegmentCombiner::kSum ? sum : DivideOrZero(sum, divisor));
  }
  return pooled;
}

// Block (x, y) pools segments [x * teams, (x + 1) * teams). A strip is lanes * kColumns columns; the block has strips
// y, y + gridDim.y, ...
template <int kColumns, class T>
__global__ void __launch_bounds__(kThreads) PoolWeightedKernel(const FloatPoolJob<T> job, int lanes) {
  const int64_t segment = int64_t{blockIdx.x} * (kThreads / lanes) + static_cast<int>(threadIdx.x) / lanes;
  if (segment >= job.num_segments) return;
  const int64_t begin = job.starts[segment], end = job.starts[segment + 1];
  const int64_t stride = int64_t{gridDim.y} * lanes * kColumns;
  int64_t column = (int64_t{blockIdx.y} * lanes + static_cast<int>(threadIdx.x) % lanes) * kColumns;
  for (; column < job.width; column += stride) {
    Columns<T, kColumns> pooled = {};
    if (begin < end) pooled = PoolSegment<kColumns>(job, begin, end, column);
    Store(job.output + segment * job.width + column, pooled);
  }
}

template <int kColumns, class T>
Status Launch(const Call& call, const FloatPoolJob<T>& job) noexcept {
  const int lanes = LanesFor<kColumns>(job.width);
  const int64_t strips = (job.width + lanes * kColumns - 1) / (lanes * kColumns);
  const dim3 grid(cuda::Blocks(job.num_segments, kThreads / lanes),
                  static_cast<unsigned>(std::min(strips, cuda::kMaxGridY)));
  return call.Launch(PoolWeightedKernel<kColumns, T>, grid, kThreads, job, lanes);
}

}  // namespace

template <class T>
Status PoolWeighted(const Call& call, const FloatPoolJob<T>& job) noexcept {
  constexpr int kColumns = 16 / sizeof(T);
  return job.IsAligned(kColumns) ? Launch<kColumns>(call, job) : Launch<1>(call, job);
}

template Status PoolWeighted<Half>(const Call&, const FloatPoolJob<Half>&) noexcept;
template Status PoolWeighted<BFloat16>(const Call&, const FloatPoolJob<BFloat16>&) noexcept;
template Status PoolWeighted<float>(const Call&, const FloatPoolJob<float>&) noexcept;
template Status PoolWeighted<double>(const Call&, const FloatPoolJob<double>&) noexcept;

}  // namespace raggrad::sparse_segment::on_cuda
