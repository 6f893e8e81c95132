// The sum of Accumulation::kReproducible on a GPU: exact sums of values on one grid (core/sum_grid.h), in two passes
// over the values that no entry of the map names. The first finds the largest of them and gathers them, so that the
// second reads nothing else. Complex numbers sum their parts independently. Internal to the family.
#pragma once

#include "raggrad/core/sum_grid.h"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_fill_empty_rows/grad/default_sum.cuh"
#include "raggrad/ops/sparse_fill_empty_rows/grad/parts.h"

namespace raggrad::sparse_fill_empty_rows::on_cuda {

// Largest finite magnitudes, as bits, whose order is theirs, and the number of values. All zero at first.
struct Extent {
  unsigned long long largest[2];  // of each part
  unsigned long long count;
};

template <class T>
struct ExactParts {
  using Part = typename PartsOf<T>::Part;
  using A = SumType<Part>;
  using Grid = SumGrid<A>;
  using Bits = std::conditional_t<std::is_same_v<A, double>, unsigned long long, unsigned int>;
  static constexpr int kParts = PartsOf<T>::kParts;

  // Partial sums of all parts.
  struct Sums {
    double of[kParts][Grid::kSums];
  };

  static __device__ A Get(const T& value, int part) { return cuda::Widen(reinterpret_cast<const Part*>(&value)[part]); }
  static __device__ Grid GridOfPart(const Extent& extent, int part) {
    const auto bits = static_cast<Bits>(extent.largest[part]);
    return GridOf(__builtin_bit_cast(A, bits), static_cast<int64_t>(extent.count));
  }
};

// The values of a thread in a tile that the map does not name.
template <class T>
struct UnnamedValues {
  static constexpr unsigned kRounds = kTile / kTileThreads;
  T values[kRounds];   // zeros where the map names one
  uint32_t taken = 0;  // bit r: value r is not named

  __device__ UnnamedValues(const T* grad, int64_t n_full, const uint32_t* named, int64_t tile) {
    const unsigned lane = cuda::Lane();
    const int64_t first_word = tile * kTileWords + threadIdx.x / kWarp * kRounds;
    const int64_t left = n_full - first_word * kWarp - lane;  // values from this lane's first one on
    const uint32_t words = lane < kRounds ? named[first_word + lane] : 0;
#pragma unroll
    for (unsigned round = 0; round < kRounds; ++round) {
      const bool is_named = (__shfl_sync(kAllLanes, words, round) >> lane & 1) != 0;
      const bool is_taken = !is_named && round * kWarp < left;
      values[round] = is_taken ? grad[(first_word + round) * kWarp + lane] : T{};
      taken |= is_taken ? 1U << round : 0;
    }
  }
  template <class F>
  __device__ void ForEach(const F& f) const {
#pragma unroll
    for (unsigned round = 0; round < kRounds; ++round) {
      if ((taken >> round & 1) != 0) f(values[round]);
    }
  }
};

// The operands of the sum.
template <class T>
struct ExactJob {
  const T* grad;  // [n_full]
  int64_t n_full;
  const uint32_t* named;
  Extent* extent;
  T* gathered;   // [room]: the values that the map does not name, in any order, if they fit
  int64_t room;  // n_full less the entries of the map: enough unless it names a place twice; 0 if none are gathered
};

// The largest finite magnitude of a part of a thread's values.
template <class T>
__device__ typename ExactParts<T>::A LargestOf(const UnnamedValues<T>& unnamed, int part) {
  using Exact = ExactParts<T>;
  typename Exact::A largest = 0;
  for (const T& value : unnamed.values) largest = fmax(largest, fabs(Exact::Get(value, part)));  // NaN is no number
  if (largest - largest == 0) return largest;
  largest = 0;  // there are infinities, which do not count
  for (const T& value : unnamed.values) {
    const auto magnitude = fabs(Exact::Get(value, part));
    if (magnitude > largest && magnitude - magnitude == 0) largest = magnitude;
  }
  return largest;
}

// Values of more bytes than this are not gathered: those of a tile would not fit in shared memory.
template <class T>
constexpr bool kGathers = sizeof(T) <= 8;

// One block for each tile. Finds the extent and gathers the values, in shared memory first.
template <class T>
__global__ void __launch_bounds__(kTileThreads) FindExtent(const ExactJob<T> job) {
  using Exact = ExactParts<T>;
  constexpr unsigned kWarps = kTileThreads / kWarp;
  __shared__ unsigned long long block_largest[Exact::kParts];
  __shared__ unsigned counts[kWarps];
  __shared__ unsigned long long block_begin;
  alignas(16) __shared__ char memory[kGathers<T> ? kTile * sizeof(T) : 1];  // shared memory runs no constructors
  if (threadIdx.x < Exact::kParts) block_largest[threadIdx.x] = 0;
  __syncthreads();
  const unsigned lane = cuda::Lane(), warp = threadIdx.x / kWarp;
  const UnnamedValues<T> unnamed(job.grad, job.n_full, job.named, blockIdx.x);
  const auto own = static_cast<unsigned>(__popc(unnamed.taken));
  unsigned up_to_lane = own;
#pragma unroll
  for (unsigned step = 1; step < kWarp; step *= 2) {
    const unsigned before = __shfl_up_sync(kAllLanes, up_to_lane, step);
    if (lane >= step) up_to_lane += before;
  }
  if (lane == kWarp - 1) counts[warp] = up_to_lane;
  for (int part = 0; part < Exact::kParts; ++part) {
    typename Exact::A largest = LargestOf(unnamed, part);
    for (int step = kWarp / 2; step > 0; step /= 2) largest = fmax(largest, __shfl_xor_sync(kAllLanes, largest, step));
    const auto bits = __builtin_bit_cast(typename Exact::Bits, largest);
    if (lane == 0) atomicMax(&block_largest[part], static_cast<unsigned long long>(bits));
  }
  __syncthreads();
  unsigned before_warp = 0, all = 0;
#pragma unroll
  for (unsigned w = 0; w < kWarps; ++w) {
    if (w < warp) before_warp += counts[w];
    all += counts[w];
  }
  if (threadIdx.x == 0) {
    block_begin = atomicAdd(&job.extent->count, static_cast<unsigned long long>(all));
    for (int part = 0; part < Exact::kParts; ++part) atomicMax(&job.extent->largest[part], block_largest[part]);
  }
  if constexpr (kGathers<T>) {
    T* const gathered = reinterpret_cast<T*>(memory);
    unsigned place = before_warp + up_to_lane - own;
    unnamed.ForEach([&](const T& value) { gathered[place++] = value; });
    __syncthreads();
    const auto begin = static_cast<int64_t>(block_begin);
    for (unsigned k = threadIdx.x; k < all && begin + k < job.room; k += kTileThreads) {
      job.gathered[begin + k] = gathered[k];
    }
  }
}

// Adds up the sums of all threads of the block; thread 0 gets the total.
template <int kThreads, class T>
__device__ typename ExactParts<T>::Sums AddBlock(typename ExactParts<T>::Sums sums) {
  for (auto& part : sums.of) {
    for (double& sum : part) {
      sum = FoldBlock<kThreads>(sum);
      __syncthreads();  // the next sum uses the same memory
    }
  }
  return sums;
}

// Each block sums a share of the values. If they were too many to be gathered, it takes them from every gridDim.x-th
// tile.
template <class T>
__global__ void SumExactly(const ExactJob<T> job, typename ExactParts<T>::Sums* block_sums) {
  using Exact = ExactParts<T>;
  typename Exact::Grid grids[Exact::kParts];
  for (int part = 0; part < Exact::kParts; ++part) grids[part] = Exact::GridOfPart(*job.extent, part);
  typename Exact::Sums sums = {};
  const auto add = [&](const T& value) {
    for (int part = 0; part < Exact::kParts; ++part) {
      const typename Exact::Grid& grid = grids[part];
      if constexpr (Exact::Grid::kSums == 1) {
        sums.of[part][0] += (static_cast<double>(Exact::Get(value, part)) + grid.magic) - grid.magic;
      } else {
        const double x = cuda::Flush(Exact::Get(value, part)) * grid.scale;
        const double rounded = (x + grid.magic) - grid.magic;
        sums.of[part][0] += rounded;
        sums.of[part][1] += ((x - rounded) + grid.magic2) - grid.magic2;
      }
    }
  };
  const auto count = static_cast<int64_t>(job.extent->count);
  if (count <= job.room) {
    const int64_t threads = int64_t{gridDim.x} * kTileThreads;
#pragma unroll 4
    for (int64_t i = cuda::GlobalThread(); i < count; i += threads) add(job.gathered[i]);
  } else {
    for (int64_t tile = blockIdx.x; tile * kTile < job.n_full; tile += gridDim.x) {
      UnnamedValues<T>(job.grad, job.n_full, job.named, tile).ForEach(add);
    }
  }
  sums = AddBlock<kTileThreads, T>(sums);
  if (threadIdx.x == 0) block_sums[blockIdx.x] = sums;
}

// One block. Without values the result is +0.
template <class T>
__global__ void RoundBlockSums(const typename ExactParts<T>::Sums* block_sums, int64_t blocks, const Extent* extent,
                               T* result) {
  using Exact = ExactParts<T>;
  using Part = typename Exact::Part;
  typename Exact::Sums sums = {};
  for (int64_t block = threadIdx.x; block < blocks; block += kLastThreads) {
    for (int part = 0; part < Exact::kParts; ++part) {
      for (int s = 0; s < Exact::Grid::kSums; ++s) sums.of[part][s] += block_sums[block].of[part][s];
    }
  }
  sums = AddBlock<kLastThreads, T>(sums);
  if (threadIdx.x != 0) return;
  for (int part = 0; part < Exact::kParts; ++part) {
    typename Exact::A total = 0;
    if (extent->count > 0) {
      const typename Exact::Grid grid = Exact::GridOfPart(*extent, part);
      if constexpr (Exact::Grid::kSums == 1) {
        total = RoundSum(grid, sums.of[part][0]);
      } else {
        total = RoundSums(grid, sums.of[part][0], sums.of[part][1], 1.0);
      }
    }
    reinterpret_cast<Part*>(result)[part] = cuda::Narrow<Part>(total);
  }
}

// Queues the sum. The map has n entries. Memory: n_full - n values (none for complex128) and some KiB.
template <class T>
Status SumDefaultExactly(const Call& call, const T* grad, int64_t n_full, int64_t n, const uint32_t* named,
                         T* result) noexcept {
  using Sums = typename ExactParts<T>::Sums;
  constexpr unsigned kMostBlocks = cuda::kTuning.exact_blocks_per_multiprocessor * cuda::kTuning.multiprocessors;
  const unsigned tiles = cuda::Blocks(n_full, kTile), blocks = std::min(tiles, kMostBlocks);
  auto block_sums = Scratch<Sums>::Make(call.device_memory(), blocks);
  if (!block_sums.ok()) return block_sums.status();
  auto extent = Scratch<Extent>::Make(call.device_memory(), 1);
  if (!extent.ok()) return extent.status();
  const int64_t room = kGathers<T> ? std::max<int64_t>(n_full - n, 0) : 0;
  auto gathered = Scratch<T>::Make(call.device_memory(), room);
  if (!gathered.ok()) return gathered.status();
  const ExactJob<T> job = {grad, n_full, named, extent->data(), gathered->data(), room};
  if (Status s = call.Fill(extent->data(), 0, sizeof(Extent)); !s.ok()) return s;
  if (Status s = call.Launch(FindExtent<T>, tiles, kTileThreads, job); !s.ok()) return s;
  if (Status s = call.Launch(SumExactly<T>, blocks, kTileThreads, job, block_sums->data()); !s.ok()) return s;
  return call.Launch(RoundBlockSums<T>, 1, kLastThreads, block_sums->data(), blocks, extent->data(), result);
}

}  // namespace raggrad::sparse_fill_empty_rows::on_cuda
