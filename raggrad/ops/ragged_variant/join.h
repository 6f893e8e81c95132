// What the kernels of this family share: the check of splits, and the copy of many pieces into one tensor. Descriptions
// and splits are in host memory wherever the values are, so that only that copy depends on the device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "raggrad/core/context.h"
#include "raggrad/core/ragged.h"
#include "raggrad/cuda/batched_copy.h"

namespace raggrad::ragged_variant::on_cpu {

inline constexpr int64_t kCheckGrain = 16384;     // splits: some 10 us of looking at them
inline constexpr int64_t kElementGrain = 2048;    // elements: the same
inline constexpr int64_t kCopyGrain = 128 << 10;  // bytes: some 10 us of copying
inline constexpr int64_t kPieceCost = 64;         // in bytes: what finding an element costs, however little it holds
inline constexpr int64_t kChunksPerWorker = 4;

// The numbers of a vector of splits that is not empty: the first is 0, none is smaller than the one before it, and the
// last is `last`, if that is given.
Status CheckSplits(std::string_view op, std::string_view argument, const TensorView& splits,
                   std::optional<int64_t> last, Executor& executor) noexcept;

// Cuts the places [begin, end) where pieces meet: f(i, at, count) for each run [at, at + count) that lies in piece i.
// Piece i has the places from begin_of(i) to begin_of(i + 1), ascending.
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

// Replaces n sizes, the i-th at size(i), by where each begins if they follow one another. Returns where the last ends;
// nothing if that is 2^63 or more.
template <class Size>
std::optional<int64_t> SizesToBegins(int64_t n, const Size& size) noexcept {
  int64_t total = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t count = std::exchange(size(i), total);
    if (__builtin_add_overflow(total, count, &total)) return std::nullopt;
  }
  return total;
}

// Pieces, one after the other.
struct Joined {
  std::string_view op;            // for messages
  std::string_view argument;      // that the pieces come from, for messages
  int output;                     // which output of the operator it is
  std::span<const Piece> pieces;  // in host memory; what they point to is on `device`
  DType dtype;
  Shape shape;  // the pieces fill it
  Device device;

  int64_t total() const noexcept { return *shape.NumElements(); }
};

// The context for what is in host memory even if the values are not.
inline Context HostContext(const Context& ctx, Device device) noexcept {
  Context host = ctx;
  if (device != Device::kCpu) host.allocator = &DefaultAllocator();
  return host;
}

// The result is one allocation: for strings, all elements and then all characters in the elements' order. Work is cut
// by bytes, strings by their number, so that one huge element is shared by all workers.
Result<Tensor> Join(const Joined& joined, const Context& ctx) noexcept;

// A copy of one tensor, on the device where it is.
Result<Tensor> Copy(std::string_view op, std::string_view argument, int output, const TensorView& view,
                    const Context& ctx) noexcept;

}  // namespace raggrad::ragged_variant::on_cpu
