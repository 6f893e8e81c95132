// Each block of threads writes 16 KiB of the result, so that one huge piece and a million tiny ones are copied at the
// same speed. A block finds the pieces that it needs. Each of its threads copies four units of 16 bytes, and single
// bytes where pieces meet within a unit.
//
// The host needs longer to describe the pieces than the GPU needs to copy them, so host threads share that work. Each
// describes runs of pieces, directly in the pinned memory that the GPU reads. Where a run begins in the result is not
// known until all are described, so positions are relative to the run.
#include <algorithm>
#include <utility>

#include "raggrad/cuda/batched_copy.h"
#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/staging.cuh"
#include "raggrad/cuda/tuning.h"

namespace raggrad::cuda {
namespace {

constexpr int kThreads = kTuning.join_threads_per_block;
constexpr int kUnitsPerThread = kTuning.join_units_per_thread;
constexpr int64_t kUnit = 16;  // bytes: the widest store of a thread
constexpr int64_t kBlockBytes = kThreads * kUnitsPerThread * kUnit;
constexpr int64_t kRun = kTuning.describe_pieces_per_run;
constexpr int64_t kRunsOfOneThread = kTuning.describe_max_serial_runs;

// The host's description of the pieces, in pinned memory.
struct Staged {
  Piece* pieces;        // `begin` is relative to the piece's run
  int64_t* run_begins;  // where each run begins in the result

  static constexpr int64_t Runs(int64_t count) { return (count + kRun - 1) / kRun; }
  static constexpr int64_t Bytes(int64_t count) {
    return count * static_cast<int64_t>(sizeof(Piece)) + Runs(count) * static_cast<int64_t>(sizeof(int64_t));
  }
};

// Copies the description to device memory and makes positions absolute. One more entry says where the last piece ends.
__global__ void ReceiveKernel(Staged staged, int64_t count, int64_t end, Piece* list) {
  LetNextKernelStart();
  const int64_t i = GlobalThread();
  if (i > count) return;
  Piece piece = {nullptr, end};
  if (i < count) {
    piece = staged.pieces[i];
    piece.begin += staged.run_begins[i / kRun];
  }
  list[i] = piece;
}

// A description in device or shared memory.
struct Pieces {
  const Piece* list;  // [count + 1]: the last says where the piece before it ends
  int64_t count;
  int64_t value_bytes;

  __device__ int64_t begin(int64_t i) const { return list[i].begin * value_bytes; }
};

// The last piece that begins at or before byte `at`, with at < begin(count). A warp tests 32 pieces at a time.
__device__ int64_t FindTogether(const Pieces& pieces, int64_t at) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int64_t low = 0, high = pieces.count;  // begin(low) <= at < begin(high)
  while (high - low > 1) {
    const int64_t step = (high - low + 31) / 32;
    const int64_t candidate = low + lane * step;
    const unsigned before = __ballot_sync(~0U, candidate < high && pieces.begin(candidate) <= at);
    low += (31 - __clz(static_cast<int>(before))) * step;  // the bit of lane 0 is always set
    high = min(high, low + step);
  }
  return low;
}

// The same, by one thread.
__device__ int64_t Find(const Pieces& pieces, int64_t at) {
  int64_t low = 0, high = pieces.count - 1;
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

// Loads 16 bytes as Parts, to which the address is aligned.
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
// Loads 16 bytes from any address, by the widest loads that it allows.
__device__ uint4 LoadUnit(const char* from) {
  const auto address = reinterpret_cast<uintptr_t>(from);
  if (address % 16 == 0) return LoadParts<uint4>(from);
  if (address % 8 == 0) return LoadParts<uint64_t>(from);
  if (address % 4 == 0) return LoadParts<uint32_t>(from);
  if (address % 2 == 0) return LoadParts<uint16_t>(from);
  return LoadParts<uint8_t>(from);
}

// Copies bytes [at, stop) of the result one by one.
__device__ void CopyBytes(const Pieces& pieces, int64_t at, int64_t stop, char* to) {
  for (int64_t i = Find(pieces, at); at < stop; ++at) {
    while (at >= pieces.begin(i + 1)) ++i;
    const auto* const data = static_cast<const char*>(pieces.list[i].data);
    to[at] = data != nullptr ? __ldg(data + (at - pieces.begin(i))) : char{0};
  }
}

// The pieces that contain bytes [begin, end) of the result, copied to shared memory if they are few.
__device__ Pieces BringNear(Pieces pieces, int64_t begin, int64_t end) {
  __shared__ int64_t first_and_last[2];
  __shared__ Piece near[kThreads];
  if (const unsigned warp = threadIdx.x / 32; warp < 2) {
    const int64_t found = FindTogether(pieces, warp == 0 ? begin : end - 1);
    if (threadIdx.x % 32 == 0) first_and_last[warp] = found;
  }
  __syncthreads();
  const int64_t first = first_and_last[0];
  pieces.list += first;
  pieces.count = first_and_last[1] - first + 1;
  if (pieces.count >= kThreads) return pieces;
  if (threadIdx.x <= pieces.count) near[threadIdx.x] = pieces.list[threadIdx.x];
  __syncthreads();
  pieces.list = near;
  return pieces;
}

__global__ void __launch_bounds__(kThreads) JoinKernel(Pieces all, int64_t total, char* __restrict__ to) {
  const int64_t block_begin = static_cast<int64_t>(blockIdx.x) * kBlockBytes;
  const int64_t block_end = min(block_begin + kBlockBytes, total);
  AwaitKernelBefore();
  const Pieces pieces = BringNear(all, block_begin, block_end);

  const auto begin_of = [&](int j) { return block_begin + (j * kThreads + static_cast<int>(threadIdx.x)) * kUnit; };
  uint4 units[kUnitsPerThread];
  unsigned whole = 0;  // bit j is set if unit j lies in one piece
#pragma unroll
  for (int j = 0; j < kUnitsPerThread; ++j) {
    const int64_t at = begin_of(j);
    if (at + kUnit > block_end) break;
    const int64_t i = Find(pieces, at);
    if (at + kUnit > pieces.begin(i + 1)) continue;
    const auto* const data = static_cast<const char*>(pieces.list[i].data);
    units[j] = data != nullptr ? LoadUnit(data + (at - pieces.begin(i))) : uint4{};
    whole |= 1U << j;
  }
#pragma unroll
  for (int j = 0; j < kUnitsPerThread; ++j) {
    const int64_t at = begin_of(j);
    if ((whole >> j & 1) != 0) {
      *reinterpret_cast<uint4*>(to + at) = units[j];
    } else {
      CopyBytes(pieces, at, min(at + kUnit, block_end), to);
    }
  }
}

Status DoNotFill() noexcept { return Status(Code::kInternal, "pieces do not fill their tensor"); }

// Has the executor describe `count` pieces. Together they must have `values` values.
Status Describe(int64_t count, PieceWriter write, Executor& executor, int64_t values, const Staged& staged) noexcept {
  const int64_t runs = Staged::Runs(count);
  const auto describe = [&](int64_t run) {
    const int64_t begin = run * kRun;
    staged.run_begins[run] = write(begin, std::min(begin + kRun, count), staged.pieces + begin);
  };
  (runs > kRunsOfOneThread ? executor : SerialExecutor()).Run(runs, describe);
  int64_t end = 0;
  for (int64_t run = 0; run < runs; ++run) {
    const int64_t size = std::exchange(staged.run_begins[run], end);
    if (size < 0 || __builtin_add_overflow(end, size, &end)) return DoNotFill();
  }
  return end == values ? Status() : DoNotFill();
}

struct Output {
  int index;
  DType dtype;
  const Shape& shape;
};

Result<Tensor> JoinMany(const UncapturedCall& call, int64_t count, PieceWriter write, Executor& executor,
                        const Output& output) noexcept {
  Result<Staging> staging = Staging::Take(static_cast<size_t>(Staged::Bytes(count)));
  if (!staging.ok()) return staging.status();
  auto* const pieces = static_cast<Piece*>(staging->data());
  const Staged staged{pieces, reinterpret_cast<int64_t*>(pieces + count)};
  const int64_t values = *output.shape.NumElements();
  if (Status s = Describe(count, write, executor, values, staged); !s.ok()) return s;

  Result<Tensor> joined = AllocateOutput(call, output.index, output.dtype, output.shape);
  if (!joined.ok() || joined->bytes() == 0) return joined;
  Result<Scratch<Piece>> list = Scratch<Piece>::Make(call.device_memory(), count + 1);
  if (!list.ok()) return list.status();
  const Status received =
      call.Launch(ReceiveKernel, Blocks(count + 1, kThreads), kThreads, staged, count, values, list->data());
  if (!received.ok()) return received;
  if (Status s = staging->Release(call.stream); !s.ok()) return s;
  const auto value_bytes = static_cast<int64_t>(DTypeSize(output.dtype));
  const int64_t total = values * value_bytes;
  const Status copied = call.LaunchEarly(JoinKernel, Blocks(total, kBlockBytes), kThreads, 0,
                                         Pieces{list->data(), count, value_bytes}, total, joined->As<char>());
  if (!copied.ok()) return copied;
  return joined;
}

// A single piece is a plain copy.
Result<Tensor> CopyOne(const Call& call, const void* from, const Output& output) noexcept {
  Result<Tensor> copy = AllocateOutput(call, output.index, output.dtype, output.shape);
  if (!copy.ok() || copy->bytes() == 0) return copy;
  if (from == nullptr) {
    if (Status s = call.Fill(copy->data(), 0, copy->bytes()); !s.ok()) return s;
    return copy;
  }
  const cudaError_t error = cudaMemcpyAsync(copy->data(), from, copy->bytes(), cudaMemcpyDeviceToDevice, call.stream);
  if (Status s = ToStatus(error, "a tensor could not be copied"); !s.ok()) return s;
  return copy;
}

Result<Tensor> Join(int64_t count, PieceWriter write, Executor& executor, int index, DType dtype, const Shape& shape,
                    const Context& ctx) noexcept {
  const Result<UncapturedCall> call = UncapturedCall::Begin(ctx);
  if (!call.ok()) return call.status();
  const Output output{index, dtype, shape};
  if (count > 1) return JoinMany(*call, count, write, executor, output);
  Piece one{};
  if (write(0, count, &one) != shape.NumElements()) return DoNotFill();
  return CopyOne(*call, one.data, output);
}

}  // namespace

extern "C" [[gnu::visibility("default")]] const BatchedCopy raggrad_cuda_batched_copy = {&Join};

}  // namespace raggrad::cuda
