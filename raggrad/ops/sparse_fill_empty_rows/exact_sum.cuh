// The sum of Accumulation::kReproducible on a GPU: exact sums of values on one grid (core/sum_grid.h), in two passes
// over the values that no entry of the map names. Complex numbers sum their parts independently. Internal to the
// family.
#pragma once

#include "raggrad/core/sum_grid.h"
#include "raggrad/ops/sparse_fill_empty_rows/default_sum.cuh"
#include "raggrad/ops/sparse_fill_empty_rows/parts.h"

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

// Calls f(value) for each value of the block's tile that the map does not name.
template <class T, class F>
__device__ void ForEachUnnamed(const T* grad, int64_t n_full, const uint32_t* named, const F& f) {
  constexpr unsigned kRounds = kTile / kTileThreads;
  const unsigned lane = cuda::Lane();
  const int64_t first_word = blockIdx.x * kTileWords + threadIdx.x / kWarp * kRounds;
  const uint32_t words = lane < kRounds ? named[first_word + lane] : 0;
  T values[kRounds];
  uint32_t taken = 0;
#pragma unroll
  for (unsigned round = 0; round < kRounds; ++round) {
    const int64_t place = (first_word + round) * kWarp + lane;
    const bool is_named = (__shfl_sync(kAllLanes, words, round) >> lane & 1) != 0;
    if (is_named || place >= n_full) continue;
    values[round] = grad[place];
    taken |= 1U << round;
  }
#pragma unroll
  for (unsigned round = 0; round < kRounds; ++round) {
    if ((taken >> round & 1) != 0) f(values[round]);
  }
}

// One block for each tile.
template <class T>
__global__ void FindExtent(const T* grad, int64_t n_full, const uint32_t* named, Extent* extent) {
  using Exact = ExactParts<T>;
  using A = typename Exact::A;
  __shared__ Extent of_block;
  if (threadIdx.x == 0) of_block = {};
  __syncthreads();
  A largest[Exact::kParts] = {};
  unsigned count = 0;
  ForEachUnnamed(grad, n_full, named, [&](const T& value) {
    ++count;
    for (int part = 0; part < Exact::kParts; ++part) {
      const A magnitude = fabs(Exact::Get(value, part));
      if (magnitude > largest[part] && magnitude - magnitude == 0) largest[part] = magnitude;
    }
  });
  for (int part = 0; part < Exact::kParts; ++part) {
    for (int step = kWarp / 2; step > 0; step /= 2) {
      const A other = __shfl_xor_sync(kAllLanes, largest[part], step);
      if (other > largest[part]) largest[part] = other;
    }
  }
  count = __reduce_add_sync(kAllLanes, count);
  if (cuda::Lane() == 0) {
    for (int part = 0; part < Exact::kParts; ++part) {
      const auto bits = __builtin_bit_cast(typename Exact::Bits, largest[part]);
      atomicMax(&of_block.largest[part], static_cast<unsigned long long>(bits));
    }
    atomicAdd(&of_block.count, static_cast<unsigned long long>(count));
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int part = 0; part < Exact::kParts; ++part) atomicMax(&extent->largest[part], of_block.largest[part]);
  atomicAdd(&extent->count, of_block.count);
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

// One block for each tile.
template <class T>
__global__ void SumTilesExactly(const T* grad, int64_t n_full, const uint32_t* named, const Extent* extent,
                                typename ExactParts<T>::Sums* tile_sums) {
  using Exact = ExactParts<T>;
  typename Exact::Grid grids[Exact::kParts];
  for (int part = 0; part < Exact::kParts; ++part) grids[part] = Exact::GridOfPart(*extent, part);
  typename Exact::Sums sums = {};
  ForEachUnnamed(grad, n_full, named, [&](const T& value) {
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
  });
  sums = AddBlock<kTileThreads, T>(sums);
  if (threadIdx.x == 0) tile_sums[blockIdx.x] = sums;
}

// One block. Without values the result is +0.
template <class T>
__global__ void RoundTileSums(const typename ExactParts<T>::Sums* tile_sums, int64_t tiles, const Extent* extent,
                              T* result) {
  using Exact = ExactParts<T>;
  using Part = typename Exact::Part;
  typename Exact::Sums sums = {};
  for (int64_t tile = threadIdx.x; tile < tiles; tile += kLastThreads) {
    for (int part = 0; part < Exact::kParts; ++part) {
      for (int s = 0; s < Exact::Grid::kSums; ++s) sums.of[part][s] += tile_sums[tile].of[part][s];
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

// Queues the sum. Memory: 8 bytes for each tile of 4,096 places, 16 for float64, twice as many for complex numbers.
template <class T>
Status SumDefaultExactly(const Call& call, const T* grad, int64_t n_full, const uint32_t* named, T* result) noexcept {
  using Sums = typename ExactParts<T>::Sums;
  const unsigned tiles = cuda::Blocks(n_full, kTile);
  auto tile_sums = Scratch<Sums>::Make(call.device_memory(), tiles);
  if (!tile_sums.ok()) return tile_sums.status();
  auto extent = Scratch<Extent>::Make(call.device_memory(), 1);
  if (!extent.ok()) return extent.status();
  if (Status s = call.Fill(extent->data(), 0, sizeof(Extent)); !s.ok()) return s;
  if (Status s = call.Launch(FindExtent<T>, tiles, kTileThreads, grad, n_full, named, extent->data()); !s.ok()) {
    return s;
  }
  if (Status s =
          call.Launch(SumTilesExactly<T>, tiles, kTileThreads, grad, n_full, named, extent->data(), tile_sums->data());
      !s.ok()) {
    return s;
  }
  return call.Launch(RoundTileSums<T>, 1, kLastThreads, tile_sums->data(), tiles, extent->data(), result);
}

}  // namespace raggrad::sparse_fill_empty_rows::on_cuda
