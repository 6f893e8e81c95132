// The sum of the values that no entry of the map names, on a GPU. Internal to the family.
#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>

#include "raggrad/cuda/arithmetic.cuh"
#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/device.cuh"

namespace raggrad::sparse_fill_empty_rows::on_cuda {

using cuda::Call;
using cuda::kAllLanes;
using cuda::kWarp;

// These three define results: they fix the order of sums, which README.md states.
inline constexpr int64_t kTile = 4096;  // places
inline constexpr int kTileThreads = 256;
inline constexpr int kLastThreads = 1024;

// Words of `named` for a tile. Bit p % 32 of word p / 32 is set if the map names place p of grad_values. There are
// words for whole tiles.
inline constexpr int64_t kTileWords = kTile / kWarp;

// The type that values of type T are summed in. Integers wrap: a sum modulo 2^64 has the low bits of the narrower sum.
template <class T>
using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, SumType<T>>;

template <class T>
__device__ Sum<T> ToSum(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(value);
  } else {
    return cuda::Widen(value);
  }
}
template <class T>
__device__ T FromSum(Sum<T> sum) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(sum);
  } else {
    return cuda::Narrow<T>(sum);
  }
}
template <class A>
__device__ A Plus(A a, A b) {
  return cuda::Add(a, b);
}
template <class F>
__device__ std::complex<F> Plus(std::complex<F> a, std::complex<F> b) {
  return {Plus(a.real(), b.real()), Plus(a.imag(), b.imag())};
}

// Folds the sums of all threads into one, which thread 0 gets: thread t adds the sum of thread t + half, for half =
// kThreads / 2, kThreads / 4, ..., 1.
template <int kThreads, class A>
__device__ A FoldBlock(A sum) {
  alignas(16) __shared__ char memory[kThreads * sizeof(A)];  // bytes, because shared memory runs no constructors
  A* const sums = reinterpret_cast<A*>(memory);
  sums[threadIdx.x] = sum;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] = Plus(sums[threadIdx.x], sums[threadIdx.x + half]);
  }
  return sums[0];
}

// One block for each tile. A warp sums 512 neighbouring places, a lane every 32nd of them. Named places count as +0,
// which changes no sum that began with +0.
template <class T>
__global__ void SumTiles(const T* grad, int64_t n_full, const uint32_t* named, Sum<T>* tile_sums) {
  constexpr unsigned kRounds = kTile / kTileThreads;
  const unsigned lane = cuda::Lane();
  const int64_t first_word = blockIdx.x * kTileWords + threadIdx.x / kWarp * kRounds;
  const uint32_t words = lane < kRounds ? named[first_word + lane] : 0;
  T values[kRounds];
#pragma unroll
  for (unsigned round = 0; round < kRounds; ++round) {
    const int64_t place = (first_word + round) * kWarp + lane;
    const bool is_named = (__shfl_sync(kAllLanes, words, round) >> lane & 1) != 0;
    values[round] = is_named || place >= n_full ? T{} : grad[place];
  }
  Sum<T> sum{};
#pragma unroll
  for (unsigned round = 0; round < kRounds; ++round) sum = Plus(sum, ToSum(values[round]));
  sum = FoldBlock<kTileThreads>(sum);
  if (threadIdx.x == 0) tile_sums[blockIdx.x] = sum;
}

// One block. Thread t adds up the sums of tiles t, t + 1024, ...
template <class T>
__global__ void SumTileSums(const Sum<T>* tile_sums, int64_t tiles, T* result) {
  Sum<T> sum{};
#pragma unroll 4
  for (int64_t tile = threadIdx.x; tile < tiles; tile += kLastThreads) sum = Plus(sum, tile_sums[tile]);
  sum = FoldBlock<kLastThreads>(sum);
  if (threadIdx.x == 0) *result = FromSum<T>(sum);
}

// One block. Thread 0 adds values one by one while all threads load the next ones: each warp those of 32 places, into
// shared memory after those of earlier warps.
inline constexpr int kSequentialThreads = 1024;
static_assert(kSequentialThreads == kWarp * kWarp, "each lane has the word of one warp");
template <class T>
__global__ void SumSequentially(const T* grad, int64_t n_full, const uint32_t* named, T* result) {
  alignas(16) __shared__ char memory[2][kSequentialThreads * sizeof(T)];
  __shared__ unsigned counts[2];
  const unsigned lane = cuda::Lane();
  const unsigned warp = threadIdx.x / kWarp;
  const int64_t steps = (n_full + kSequentialThreads - 1) / kSequentialThreads;
  Sum<T> sum{};
  for (int64_t step = 0; step <= steps; ++step) {
    if (step < steps) {
      // The first place of the word that this lane reads.
      const int64_t word_begin = (step * kSequentialThreads / kWarp + lane) * kWarp;
      uint32_t unnamed = ~named[word_begin / kWarp];
      if (word_begin + kWarp > n_full) unnamed &= word_begin < n_full ? (1U << (n_full - word_begin)) - 1 : 0;
      const unsigned before = __reduce_add_sync(kAllLanes, lane < warp ? __popc(unnamed) : 0);
      const unsigned all = __reduce_add_sync(kAllLanes, __popc(unnamed));
      const uint32_t own = __shfl_sync(kAllLanes, unnamed, warp);
      if (own >> lane & 1) {
        reinterpret_cast<T*>(memory[step % 2])[before + __popc(own & ((1U << lane) - 1))] =
            grad[step * kSequentialThreads + threadIdx.x];
      }
      if (threadIdx.x == 0) counts[step % 2] = all;
    }
    if (step > 0 && threadIdx.x == 0) {
      const T* const values = reinterpret_cast<const T*>(memory[(step - 1) % 2]);
      const unsigned count = counts[(step - 1) % 2];
#pragma unroll 8
      for (unsigned k = 0; k < count; ++k) sum = ToSum(FromSum<T>(Plus(sum, ToSum(values[k]))));
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *result = FromSum<T>(sum);
}

// Queues the sum of the values that `named` leaves out. Integers have one result in any order.
template <class T>
Status SumDefault(const Call& call, const T* grad, int64_t n_full, const uint32_t* named, T* result) noexcept {
  if constexpr (!std::is_integral_v<T>) {
    if (call.ctx.accumulation == Accumulation::kSequential) {
      return call.Launch(SumSequentially<T>, 1, kSequentialThreads, grad, n_full, named, result);
    }
  }
  const unsigned tiles = cuda::Blocks(n_full, kTile);
  auto tile_sums = Scratch<Sum<T>>::Make(call.device_memory(), tiles);
  if (!tile_sums.ok()) return tile_sums.status();
  if (Status s = call.Launch(SumTiles<T>, tiles, kTileThreads, grad, n_full, named, tile_sums->data()); !s.ok()) {
    return s;
  }
  return call.Launch(SumTileSums<T>, 1, kLastThreads, tile_sums->data(), tiles, result);
}

}  // namespace raggrad::sparse_fill_empty_rows::on_cuda
