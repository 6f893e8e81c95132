// GPU backend of the gradient. The rule is serial: a cursor over the output rows advances with every input row that
// matches, so its position depends on all earlier rows. The GPU guesses that an input row matches if and only if it
// lies in the box around all output rows. The cursor is then the number of earlier rows inside the box.
//
// The guess is verified. A row outside the box matches nothing. If every row inside matches the output row at its
// guessed cursor, or the cursor is at the end, then by induction the guess is the rule. That holds whenever the output
// is a slice of the input, in any order. If a row does not match, the CPU backend does the work.
#include <algorithm>

#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_slice/inside.cuh"
#include "raggrad/ops/sparse_slice/kernels.h"

namespace raggrad::sparse_slice::on_cuda {
namespace {

using cuda::AllocateOutput;
using cuda::Bits;
using cuda::ToStatus;

// Indices as unsigned keys in the same order. The least key and the least complement of a key are bounds of a column,
// and both minima can start from words of ones.
__device__ uint64_t ToKey(int64_t index) {
  return static_cast<uint64_t>(index) ^ uint64_t { 1 } << 63;
}

template <int kDims>
struct Columns {
  int64_t start[kMostDims<kDims>];
  int64_t d_;

  explicit Columns(const GradProblem& problem) noexcept : d_(static_cast<int64_t>(problem.input_start.size())) {
    std::ranges::copy(problem.input_start, start);
  }
  __device__ int64_t d() const { return kDims == kAnyDims ? d_ : kDims; }

  // Whether input == output + start; the addition wraps.
  __device__ bool Match(const int64_t* input, const int64_t* output) const {
    bool match = true;
    for (int64_t c = 0; c < d(); ++c) {
      const uint64_t moved = static_cast<uint64_t>(output[c]) + static_cast<uint64_t>(start[c]);
      match &= static_cast<uint64_t>(input[c]) == moved;
    }
    return match;
  }
};

// Columns whose bounds a block finds. Blocks with a larger y have further columns.
template <int kDims>
constexpr int kBoundedColumns = kDims == kAnyDims ? cuda::kTuning.bounds_columns_per_block : kDims;

// bounds[2c] = the least key of column c, bounds[2c + 1] = the least complement of a key. Both have to be all ones
// before. m must be positive.
template <int kDims>
__global__ void FindBounds(const __grid_constant__ Columns<kDims> columns, const int64_t* rows, int64_t m,
                           uint64_t* bounds) {
  constexpr int kColumns = kBoundedColumns<kDims>;
  const int64_t first = blockIdx.y * kColumns;
  const int64_t left = columns.d() - first;
  uint64_t least[2 * kColumns];
  for (uint64_t& bound : least) bound = ~uint64_t{0};
  for (int64_t j = cuda::GlobalThread(); j < m; j += int64_t{gridDim.x} * blockDim.x) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (c >= left) break;
      const uint64_t key = ToKey(rows[j * columns.d() + first + c]);
      least[2 * c] = min(least[2 * c], key);
      least[2 * c + 1] = min(least[2 * c + 1], ~key);
    }
  }
  __shared__ uint64_t of_warps[2 * kColumns][kThreads / kWarp];
#pragma unroll
  for (int b = 0; b < 2 * kColumns; ++b) {
    for (unsigned step = kWarp / 2; step > 0; step /= 2) {
      least[b] = min(least[b], __shfl_xor_sync(kAllLanes, least[b], step));
    }
    if (cuda::Lane() == 0) of_warps[b][threadIdx.x / kWarp] = least[b];
  }
  __syncthreads();
  if (threadIdx.x >= 2 * kColumns || threadIdx.x >= 2 * left) return;
  uint64_t of_block = ~uint64_t{0};
  for (const uint64_t of_warp : of_warps[threadIdx.x]) of_block = min(of_block, of_warp);
  cuda::AtomicMin(bounds + 2 * first + threadIdx.x, of_block);
}

// The box around the output rows, moved by start.
template <int kDims>
struct OutputBox {
  Columns<kDims> columns;
  const uint64_t* bounds;

  __device__ int64_t d() const { return columns.d(); }
  __device__ bool Holds(const int64_t* row) const {
    bool inside = true;
    for (int64_t c = 0; c < columns.d(); ++c) {
      const uint64_t least = bounds[2 * c], most = ~bounds[2 * c + 1];  // keys have the distances of indices
      const uint64_t offset = ToKey(row[c]) - static_cast<uint64_t>(columns.start[c]) - least;
      inside &= offset <= most - least;
    }
    return inside;
  }
};

// Writes val_grad by the guessed cursor. Clears *right if a row inside does not match.
template <int kDims, class E>
__global__ void Propagate(const __grid_constant__ Columns<kDims> columns, const E* grad, const int64_t* input,
                          int64_t n, const int64_t* output, int64_t m, const uint32_t* bits, const uint64_t* ends,
                          E* val_grad, uint64_t* right) {
  const Places places = FindPlaces(bits, ends);
#pragma unroll
  for (unsigned round = 0; round < kRounds; ++round) {
    const int64_t i = RowOf(round), j = places.place[round];
    E value{};
    if (places.inside[round] && j < m) {
      value = grad[j];
      if (!columns.Match(input + i * columns.d(), output + j * columns.d())) *right = 0;
    }
    if (i < n) val_grad[i] = value;
  }
}

// For no columns, where every row matches, or no gradients, where none does: copies the gradients and fills up with
// zeros.
Status CopyThenZero(const Call& call, const GradProblem& problem, char* val_grad, size_t element) noexcept {
  const size_t copied = static_cast<size_t>(problem.m) * element;
  const size_t zeros = static_cast<size_t>(problem.n - problem.m) * element;
  if (copied > 0) {
    const cudaError_t error =
        cudaMemcpyAsync(val_grad, problem.backprop_val_grad.data, copied, cudaMemcpyDeviceToDevice, call.stream);
    if (Status s = ToStatus(error, "gradients could not be copied"); !s.ok()) return s;
  }
  return call.Fill(val_grad + copied, 0, zeros);
}

// The outcome of the guess.
struct Guess {
  bool right;
  int64_t inside;  // number of input rows in the box
};

template <int kDims>
Result<Guess> PropagateByGuess(const UncapturedCall& call, const GradProblem& problem, void* val_grad) noexcept {
  const int64_t tiles = Blocks(problem.n, kTile);
  auto bits = Scratch<uint32_t>::Make(call.device_memory(), tiles * kWarp);
  if (!bits.ok()) return bits.status();
  const auto d = static_cast<int64_t>(problem.input_start.size());
  auto words = Scratch<uint64_t>::Make(call.device_memory(), tiles + 1 + 2 * d);
  if (!words.ok()) return words.status();
  uint64_t* const ends = words->data();
  uint64_t* const right = ends + tiles;
  uint64_t* const bounds = right + 1;
  const Columns<kDims> columns(problem);
  if (Status s = call.Fill(right, 0xff, static_cast<size_t>(1 + 2 * d) * sizeof(uint64_t)); !s.ok()) return s;
  if (Status s =
          call.Launch(FindBounds<kDims>,
                      dim3(Blocks(problem.m, cuda::kTuning.bounds_rows_per_block), Blocks(d, kBoundedColumns<kDims>)),
                      kThreads, columns, problem.output_indices, problem.m, bounds);
      !s.ok()) {
    return s;
  }
  if (Status s =
          FindInside(call, OutputBox<kDims>{columns, bounds}, problem.input_indices, problem.n, bits->data(), ends);
      !s.ok()) {
    return s;
  }
  Status status = Visit(ValueTypes{}, problem.backprop_val_grad.dtype, [&]<class T>() -> Status {
    using E = Bits<T>;
    return call.Launch(Propagate<kDims, E>, static_cast<unsigned>(tiles), kThreads, columns,
                       problem.backprop_val_grad.As<E>(), problem.input_indices, problem.n, problem.output_indices,
                       problem.m, bits->data(), ends, static_cast<E*>(val_grad), right);
  });
  if (!status.ok()) return status;
  uint64_t found[2];  // the last of the ends, and `right`
  if (Status s = call.ReadBack(ends + tiles - 1, found); !s.ok()) return s;
  return Guess{found[1] != 0, static_cast<int64_t>(found[0])};
}

template <class T>
Result<Scratch<T>> CopyToHost(const Call& call, const Context& host, const T* from, int64_t count) noexcept {
  auto copy = Scratch<T>::Make(host, count);
  if (!copy.ok()) return copy;
  const cudaError_t error =
      cudaMemcpyAsync(copy->data(), from, static_cast<size_t>(count) * sizeof(T), cudaMemcpyDeviceToHost, call.stream);
  if (Status s = ToStatus(error, "operands could not be copied"); !s.ok()) return s;
  return copy;
}

// Runs the CPU backend on copies in host memory: right for any operands, and slow because of the copies.
Status PropagateOnHost(const UncapturedCall& call, const GradProblem& problem, Tensor& val_grad) noexcept {
  Context host;
  // The default executor would start a pool of threads.
  host.executor = call.ctx.executor != nullptr ? call.ctx.executor : &SerialExecutor();
  host.isa = call.ctx.isa;
  const auto d = static_cast<int64_t>(problem.input_start.size());
  const TensorView& grad = problem.backprop_val_grad;
  const auto grad_copy =
      CopyToHost(call, host, grad.As<char>(), problem.m * static_cast<int64_t>(DTypeSize(grad.dtype)));
  if (!grad_copy.ok()) return grad_copy.status();
  const auto input = CopyToHost(call, host, problem.input_indices, problem.n * d);
  if (!input.ok()) return input.status();
  const auto output = CopyToHost(call, host, problem.output_indices, problem.m * d);
  if (!output.ok()) return output.status();
  if (Status s = call.AwaitAll("operands could not be copied"); !s.ok()) return s;

  const GradProblem on_host{{grad_copy->data(), grad.dtype, grad.shape, Device::Cpu()},
                            input->data(),
                            problem.input_start,
                            output->data(),
                            problem.n,
                            problem.m};
  Result<Tensor> result = on_cpu::Grad(on_host, host);
  if (!result.ok()) return result.status();
  const cudaError_t error =
      cudaMemcpyAsync(val_grad.data(), result->data(), result->bytes(), cudaMemcpyHostToDevice, call.stream);
  if (Status s = ToStatus(error, "a result could not be copied"); !s.ok()) return s;
  return call.AwaitAll("a result could not be copied");
}

}  // namespace

Result<Tensor> Grad(const GradProblem& problem, const Context& ctx) noexcept {
  const Result<UncapturedCall> call = UncapturedCall::Begin(ctx);
  if (!call.ok()) return call.status();
  const DType dtype = problem.backprop_val_grad.dtype;
  auto val_grad = AllocateOutput(*call, 0, dtype, Shape{problem.n});
  if (!val_grad.ok()) return val_grad;
  const auto d = static_cast<int64_t>(problem.input_start.size());
  if (problem.m == 0 || d == 0) {
    if (Status s = CopyThenZero(*call, problem, val_grad->As<char>(), DTypeSize(dtype)); !s.ok()) return s;
    return val_grad;
  }
  bool right = false;
  if (d <= Shape::kMaxRank) {  // `start` fits into a kernel's arguments
    const Result<Guess> guess =
        WithDims(d, [&]<int kDims>() { return PropagateByGuess<kDims>(*call, problem, val_grad->data()); });
    if (!guess.ok()) return guess.status();
    right = guess->right;
    if (right && guess->inside < problem.m) return NotAllPropagated(problem, guess->inside);
  }
  if (!right) {
    if (Status s = PropagateOnHost(*call, problem, *val_grad); !s.ok()) return s;
  }
  return val_grad;
}

extern "C" [[gnu::visibility("default")]] const Kernels raggrad_cuda_sparse_slice = {&Grad, &Forward, &ForwardPadded};

}  // namespace raggrad::sparse_slice::on_cuda
