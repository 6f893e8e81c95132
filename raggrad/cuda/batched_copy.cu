// The result is cut into 16 KiB per block, whatever the pieces are, so that one huge piece and a million tiny ones are
// copied at the same speed. A block finds the pieces it needs; each of its threads then writes 16 bytes at a time, from
// one piece or, where pieces meet, from several.
#include <cstring>

#include "raggrad/cuda/batched_copy.h"
#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/staging.cuh"

namespace raggrad::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnitsPerThread = 4;
constexpr int64_t kUnit = 16;  // bytes that a thread writes at once
constexpr int64_t kBlockBytes = kThreads * kUnitsPerThread * kUnit;

// Where all pieces are; one more than there are pieces tells the end.
struct Pieces {
  const Piece* list;
  int64_t count;
  int64_t value_bytes;

  __device__ int64_t begin(int64_t i) const { return list[i].begin * value_bytes; }
};

// The last piece that begins at byte `at` or before, for at < begin(count): a warp looks at 32 of them at a time.
__device__ int64_t FindTogether(const Pieces& pieces, int64_t at) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int64_t low = 0, high = pieces.count;  // begin(low) <= at < begin(high)
  while (high - low > 1) {
    const int64_t step = (high - low + 31) / 32;
    const int64_t candidate = low + lane * step;
    const unsigned before = __ballot_sync(~0U, candidate < high && pieces.begin(candidate) <= at);
    low += (31 - __clz(static_cast<int>(before))) * step;  // lane 0 is always among them
    high = min(high, low + step);
  }
  return low;
}

// The same by one thread, among the pieces [low, high].
__device__ int64_t Find(const Pieces& pieces, int64_t low, int64_t high, int64_t at) {
  while (high > low) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (pieces.begin(middle) <= at) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// 16 bytes from anywhere, by the widest loads that the address allows.
template <class Part>
__device__ uint4 LoadParts(const char* from) {
  union {
    uint4 unit;
    Part parts[kUnit / sizeof(Part)];
  };
  for (int i = 0; i < static_cast<int>(kUnit / sizeof(Part)); ++i) {
    parts[i] = __ldg(reinterpret_cast<const Part*>(from) + i);
  }
  return unit;
}
__device__ uint4 LoadUnit(const char* from) {
  const auto address = reinterpret_cast<uintptr_t>(from);
  if (address % 16 == 0) return LoadParts<uint4>(from);
  if (address % 8 == 0) return LoadParts<uint64_t>(from);
  if (address % 4 == 0) return LoadParts<uint32_t>(from);
  if (address % 2 == 0) return LoadParts<uint16_t>(from);
  return LoadParts<uint8_t>(from);
}

// Bytes [at, stop), at most 16, of the result; piece i has the first of them.
__device__ uint4 Gather(const Pieces& pieces, int64_t i, int64_t at, int64_t stop) {
  const int64_t begin = pieces.begin(i);
  const auto* const from = static_cast<const char*>(pieces.list[i].data);
  if (stop - at == kUnit && stop <= pieces.begin(i + 1)) return from ? LoadUnit(from + (at - begin)) : uint4{};
  union {
    uint4 unit;
    uint8_t bytes[kUnit];
  };
  unit = {};
  for (int64_t byte = at; byte < stop; ++byte) {
    while (byte >= pieces.begin(i + 1)) ++i;
    const auto* const data = static_cast<const uint8_t*>(pieces.list[i].data);
    if (data != nullptr) bytes[byte - at] = __ldg(data + (byte - pieces.begin(i)));
  }
  return unit;
}

__global__ void __launch_bounds__(kThreads) JoinKernel(Pieces pieces, int64_t total, char* __restrict__ to) {
  __shared__ int64_t first_and_last[2];
  const int64_t block_begin = static_cast<int64_t>(blockIdx.x) * kBlockBytes;
  const int64_t block_end = min(block_begin + kBlockBytes, total);
  if (const unsigned warp = threadIdx.x / 32; warp < 2) {
    const int64_t found = FindTogether(pieces, warp == 0 ? block_begin : block_end - 1);
    if (threadIdx.x % 32 == 0) first_and_last[warp] = found;
  }
  __syncthreads();
  const int64_t first = first_and_last[0], last = first_and_last[1];

  uint4 units[kUnitsPerThread];
#pragma unroll
  for (int j = 0; j < kUnitsPerThread; ++j) {
    const int64_t at = block_begin + (j * kThreads + static_cast<int>(threadIdx.x)) * kUnit;
    if (at < block_end) units[j] = Gather(pieces, Find(pieces, first, last, at), at, min(at + kUnit, block_end));
  }
#pragma unroll
  for (int j = 0; j < kUnitsPerThread; ++j) {
    const int64_t at = block_begin + (j * kThreads + static_cast<int>(threadIdx.x)) * kUnit;
    if (at + kUnit <= block_end) {
      *reinterpret_cast<uint4*>(to + at) = units[j];
    } else if (at < block_end) {
      memcpy(to + at, &units[j], static_cast<size_t>(block_end - at));
    }
  }
}

// One piece needs no description.
Status CopyOne(const Call& call, const void* from, void* to, size_t bytes) noexcept {
  if (from == nullptr) return call.Fill(to, 0, bytes);
  return ToStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, call.stream),
                  "a tensor could not be copied");
}

Status CopyMany(const Call& call, std::span<const Piece> pieces, Tensor& to) noexcept {
  const auto count = static_cast<int64_t>(pieces.size());
  const auto value_bytes = static_cast<int64_t>(DTypeSize(to.dtype()));
  const int64_t values = *to.shape().NumElements();
  Result<Scratch<Piece>> list = Scratch<Piece>::Make(call.ctx, count + 1);
  if (!list.ok()) return list.status();
  const Status sent = Send(call, static_cast<size_t>(count + 1) * sizeof(Piece), list->data(), [&](void* staged) {
    auto* const staged_pieces = static_cast<Piece*>(staged);
    std::memcpy(staged_pieces, pieces.data(), pieces.size_bytes());
    staged_pieces[count] = {nullptr, values};
  });
  if (!sent.ok()) return sent;
  const int64_t total = values * value_bytes;
  return call.Launch(JoinKernel, Blocks(total, kBlockBytes), kThreads, Pieces{list->data(), count, value_bytes}, total,
                     to.As<char>());
}

Result<Tensor> Join(std::span<const Piece> pieces, int index, DType dtype, const Shape& shape,
                    const Context& ctx) noexcept {
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  Result<Tensor> joined = AllocateOutput(*call, index, dtype, shape);
  if (!joined.ok() || joined->bytes() == 0) return joined;
  const Status copied = pieces.size() == 1 ? CopyOne(*call, pieces[0].data, joined->data(), joined->bytes())
                                           : CopyMany(*call, pieces, *joined);
  if (!copied.ok()) return copied;
  return joined;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] const BatchedCopy raggrad_cuda_batched_copy = {&Join};

}  // namespace raggrad::cuda
