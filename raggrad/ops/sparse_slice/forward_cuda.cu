// GPU backend of the forward: marks the entries inside the box with one bit each, then copies them.
#include "raggrad/ops/sparse_slice/inside.cuh"
#include "raggrad/ops/sparse_slice/kernels.h"

namespace raggrad::sparse_slice::on_cuda {
namespace {

using cuda::AllocateOutput;
using cuda::Bits;

template <int kDims>
struct SliceBox {
  uint64_t start[kMostDims<kDims>];
  uint64_t size[kMostDims<kDims>];
  int64_t d_;

  explicit SliceBox(const ForwardProblem& problem) noexcept : d_(problem.d()) {
    for (size_t c = 0; c < problem.start.size(); ++c) {
      start[c] = static_cast<uint64_t>(problem.start[c]);
      size[c] = BoxSize(problem.start[c], problem.size[c]);
    }
  }

  __device__ int64_t d() const { return kDims == kAnyDims ? d_ : kDims; }
  // An index below `start` wraps to more than any size.
  __device__ uint64_t Shifted(const int64_t* index, int64_t c) const {
    return static_cast<uint64_t>(index[c]) - start[c];
  }
  __device__ bool Holds(const int64_t* index) const {
    bool inside = true;
    for (int64_t c = 0; c < d(); ++c) inside &= Shifted(index, c) < size[c];
    return inside;
  }
};

template <int kDims, class E>
__global__ void CopyInside(const __grid_constant__ SliceBox<kDims> box, const int64_t* indices, const E* values,
                           const uint32_t* bits, const uint64_t* ends, int64_t* output_indices, E* output_values) {
  const Places places = FindPlaces(bits, ends);
#pragma unroll
  for (unsigned round = 0; round < kRounds; ++round) {
    if (!places.inside[round]) continue;
    const int64_t i = RowOf(round), place = places.place[round];
    output_values[place] = values[i];
    for (int64_t c = 0; c < box.d(); ++c) {
      output_indices[place * box.d() + c] = static_cast<int64_t>(box.Shifted(indices + i * box.d(), c));
    }
  }
}

// In host memory, as shape, start and size are: it is known before the GPU starts, and a slice of the result can take
// it as its shape.
Result<Tensor> MakeOutputShape(const Call& call, const ForwardProblem& problem) noexcept {
  auto output_shape = ::raggrad::AllocateOutput(call.ctx, 2, DType::kInt64, Shape{problem.d()});
  if (!output_shape.ok()) return output_shape;
  for (size_t c = 0; c < problem.shape.size(); ++c) {
    output_shape->As<int64_t>()[c] = OutputDim(problem.shape[c], problem.start[c], problem.size[c]);
  }
  return output_shape;
}

template <int kDims>
Result<SparseSliceOutput> Slice(const UncapturedCall& call, const ForwardProblem& problem) noexcept {
  const SliceBox<kDims> box(problem);
  const int64_t n = problem.n();
  const int64_t tiles = Blocks(n, kTile);
  auto bits = Scratch<uint32_t>::Make(call.device_memory(), tiles * kWarp);
  if (!bits.ok()) return bits.status();
  auto ends = Scratch<uint64_t>::Make(call.device_memory(), tiles);
  if (!ends.ok()) return ends.status();
  uint64_t kept = 0;
  if (n > 0) {
    if (Status s = FindInside(call, box, problem.indices, n, bits->data(), ends->data()); !s.ok()) return s;
    if (Status s = call.ReadBack(ends->data() + tiles - 1, {&kept, 1}); !s.ok()) return s;
  }
  const auto total = static_cast<int64_t>(kept);
  auto output_indices = AllocateOutput(call, 0, DType::kInt64, Shape{total, problem.d()});
  if (!output_indices.ok()) return output_indices.status();
  auto output_values = AllocateOutput(call, 1, problem.values.dtype, Shape{total});
  if (!output_values.ok()) return output_values.status();
  auto output_shape = MakeOutputShape(call, problem);
  if (!output_shape.ok()) return output_shape.status();
  if (total > 0) {
    Status status = Visit(SliceTypes{}, problem.values.dtype, [&]<class T>() -> Status {
      using E = Bits<T>;
      return call.Launch(CopyInside<kDims, E>, static_cast<unsigned>(tiles), kThreads, box, problem.indices,
                         problem.values.As<E>(), bits->data(), ends->data(), output_indices->template As<int64_t>(),
                         output_values->template As<E>());
    });
    if (!status.ok()) return status;
  }
  return SparseSliceOutput{*std::move(output_indices), *std::move(output_values), *std::move(output_shape)};
}

}  // namespace

Result<SparseSliceOutput> Forward(const ForwardProblem& problem, const Context& ctx) noexcept {
  if (problem.values.dtype == DType::kString) return cuda::NoStrings("SparseSlice", "values");
  const Result<UncapturedCall> call = UncapturedCall::Begin(ctx);
  if (!call.ok()) return call.status();
  return WithDims(problem.d(), [&]<int kDims>() { return Slice<kDims>(*call, problem); });
}

}  // namespace raggrad::sparse_slice::on_cuda
