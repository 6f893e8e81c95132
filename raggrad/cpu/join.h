// Joins pieces into one tensor in host memory. Internal to the library; cuda/batched_copy.h does the same on a GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "raggrad/core/context.h"
#include "raggrad/core/piece.h"
#include "raggrad/cpu/chunks.h"

namespace raggrad::cpu {

inline constexpr int64_t kCopyGrain = 128 << 10;  // bytes: some 10 us of copying
inline constexpr int64_t kPieceCost = 64;         // bytes that are copied in the time it takes to find a piece
inline constexpr int64_t kCopyChunksPerWorker = 4;

// The cost, in bytes, of copying `values` values out of `pieces` pieces.
constexpr int64_t CopyCost(int64_t values, size_t value_bytes, int64_t pieces) noexcept {
  return values * static_cast<int64_t>(value_bytes) + pieces * kPieceCost;
}

// Cuts `values` values for a copy of that cost. No chunk is empty unless there are no values.
inline Chunks SplitCopy(const Executor& executor, int64_t values, int64_t cost) noexcept {
  const int64_t chunks = SplitEvenly(executor, cost, kCopyGrain, kCopyChunksPerWorker).count;
  return {values, std::clamp<int64_t>(values, 1, chunks)};
}

// Calls f(i, at, count) for each run of places [at, at + count) within [begin, end) that lies in piece i. Piece i has
// the places from begin_of(i) to begin_of(i + 1), ascending. The first piece is found by bisection.
template <class BeginOf, class F>
void ForEachRun(int64_t pieces, const BeginOf& begin_of, int64_t begin, int64_t end, const F& f) noexcept {
  int64_t i = 0;  // the last piece that begins at `begin` or before
  for (int64_t after = pieces; after - i > 1;) {
    const int64_t middle = i + (after - i) / 2;
    (begin_of(middle) <= begin ? i : after) = middle;
  }
  for (int64_t at = begin; at < end; ++i) {
    const int64_t stop = std::min<int64_t>(end, begin_of(i + 1));
    if (stop > at) f(i, at, stop - at);
    at = stop;
  }
}

// A tensor and the pieces that fill it.
struct Joined {
  std::string_view argument;  // where the pieces come from, for messages
  int output;                 // which output of the operator it is
  std::span<const Piece> pieces;
  DType dtype;
  Shape shape;
  int64_t repeated = 0;  // values of the last piece if it is repeated to the end of the tensor; 0: it is not
};

// Writes the tensor once, into one allocation: for strings, all elements and then all characters in the same order.
// Work is cut by bytes, or by the number of strings, so all workers share one huge piece. From 256 KiB on it runs in
// parallel. Smaller work does not look at the executor, so it does not start the default pool.
//
// INVALID_ARGUMENT if the shape has too many elements or a string has a size but no characters; CANCELLED if the
// caller has stopped the call; RESOURCE_EXHAUSTED.
Result<Tensor> Join(const Joined& joined, const Context& ctx) noexcept;

}  // namespace raggrad::cpu
