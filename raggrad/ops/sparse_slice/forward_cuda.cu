// GPU backend of the forward: marks the entries inside the box with one bit each, then copies them.
#include "raggrad/cuda/pad_entries.cuh"
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

// Copies the entries that are inside, as far as there is room for them.
template <int kDims, class E>
__global__ void CopyInside(const __grid_constant__ SliceBox<kDims> box, const int64_t* indices, const E* values,
                           const uint32_t* bits, const uint64_t* ends, int64_t room, int64_t* output_indices,
                           E* output_values) {
  const Places places = FindPlaces(bits, ends);
#pragma unroll
  for (unsigned round = 0; round < kRounds; ++round) {
    if (!places.inside[round] || places.place[round] >= room) continue;
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

// Which entries are inside: FindInside's bits and counts.
struct Inside {
  Scratch<uint32_t> bits;
  Scratch<uint64_t> ends;  // one for each tile

  template <int kDims>
  static Result<Inside> Queue(const Call& call, const SliceBox<kDims>& box, const ForwardProblem& problem) noexcept {
    const int64_t tiles = Blocks(problem.n(), kTile);
    auto bits = Scratch<uint32_t>::Make(call.device_memory(), tiles * kWarp);
    if (!bits.ok()) return bits.status();
    auto ends = Scratch<uint64_t>::Make(call.device_memory(), tiles);
    if (!ends.ok()) return ends.status();
    if (problem.n() > 0) {
      const Status found = FindInside(call, box, problem.indices, problem.n(), bits->data(), ends->data());
      if (!found.ok()) return found;
    }
    return Inside{*std::move(bits), *std::move(ends)};
  }
  // The number of all entries inside, in device memory; null if there are no entries.
  const uint64_t* total(int64_t n) const noexcept { return n > 0 ? ends.data() + Blocks(n, kTile) - 1 : nullptr; }
};

Result<SparseSliceOutput> AllocateOutputs(const Call& call, const ForwardProblem& problem, int64_t room) noexcept {
  auto output_indices = AllocateOutput(call, 0, DType::kInt64, Shape{room, problem.d()});
  if (!output_indices.ok()) return output_indices.status();
  auto output_values = AllocateOutput(call, 1, problem.values.dtype, Shape{room});
  if (!output_values.ok()) return output_values.status();
  auto output_shape = MakeOutputShape(call, problem);
  if (!output_shape.ok()) return output_shape.status();
  return SparseSliceOutput{*std::move(output_indices), *std::move(output_values), *std::move(output_shape)};
}

template <class E, int kDims>
Status QueueCopy(const Call& call, const SliceBox<kDims>& box, const ForwardProblem& problem, const Inside& inside,
                 SparseSliceOutput& output) noexcept {
  const int64_t room = output.output_values.shape()[0];
  if (problem.n() == 0 || room == 0) return {};
  return call.Launch(CopyInside<kDims, E>, Blocks(problem.n(), kTile), kThreads, box, problem.indices,
                     problem.values.As<E>(), inside.bits.data(), inside.ends.data(), room,
                     output.output_indices.As<int64_t>(), output.output_values.As<E>());
}

template <int kDims>
Result<SparseSliceOutput> Slice(const UncapturedCall& call, const ForwardProblem& problem) noexcept {
  const SliceBox<kDims> box(problem);
  const Result<Inside> inside = Inside::Queue(call, box, problem);
  if (!inside.ok()) return inside.status();
  uint64_t kept = 0;
  if (const uint64_t* const total = inside->total(problem.n())) {
    if (Status s = call.ReadBack(total, {&kept, 1}); !s.ok()) return s;
  }
  auto output = AllocateOutputs(call, problem, static_cast<int64_t>(kept));
  if (!output.ok()) return output;
  Status status = Visit(SliceTypes{}, problem.values.dtype,
                        [&]<class T>() -> Status { return QueueCopy<Bits<T>>(call, box, problem, *inside, *output); });
  if (!status.ok()) return status;
  return output;
}

struct CountInside {
  const uint64_t* total;  // null: none
  __device__ PaddedReport operator()() const {
    PaddedReport report;
    if (total != nullptr) report.count = *total;
    return report;
  }
};

template <int kDims>
Result<SparseSlicePaddedOutput> SlicePadded(const Call& call, const ForwardProblem& problem,
                                            int64_t max_kept) noexcept {
  auto output = AllocateOutputs(call, problem, max_kept);
  if (!output.ok()) return output.status();
  auto report = AllocateOutput(call, 3, DType::kUInt64, Shape{kReportWords});
  if (!report.ok()) return report.status();
  const SliceBox<kDims> box(problem);
  const Result<Inside> inside = Inside::Queue(call, box, problem);
  if (!inside.ok()) return inside.status();
  const cuda::PaddedEntries entries = {.indices = output->output_indices.As<int64_t>(),
                                       .values = output->output_values.data(),
                                       .max = max_kept,
                                       .d = problem.d(),
                                       .padding = problem.padding(),
                                       .form = PaddedForm::kSparseSlice,
                                       .report = report->As<PaddedReport>()};
  Status status = Visit(SliceTypes{}, problem.values.dtype, [&]<class T>() -> Status {
    if (Status s = QueueCopy<Bits<T>>(call, box, problem, *inside, *output); !s.ok()) return s;
    return cuda::QueuePadding<Bits<T>>(call, CountInside{inside->total(problem.n())}, entries);
  });
  if (!status.ok()) return status;
  return SparseSlicePaddedOutput{std::move(output->output_indices), std::move(output->output_values),
                                 std::move(output->output_shape), *std::move(report)};
}

}  // namespace

Result<SparseSliceOutput> Forward(const ForwardProblem& problem, const Context& ctx) noexcept {
  if (problem.values.dtype == DType::kString) return cuda::NoStrings("SparseSlice", "values");
  const Result<UncapturedCall> call = UncapturedCall::Begin(ctx);
  if (!call.ok()) return call.status();
  return WithDims(problem.d(), [&]<int kDims>() { return Slice<kDims>(*call, problem); });
}

Result<SparseSlicePaddedOutput> ForwardPadded(const ForwardProblem& problem, int64_t max_kept,
                                              const Context& ctx) noexcept {
  if (problem.values.dtype == DType::kString) return cuda::NoStrings("SparseSlice", "values");
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  return WithDims(problem.d(), [&]<int kDims>() { return SlicePadded<kDims>(*call, problem, max_kept); });
}

}  // namespace raggrad::sparse_slice::on_cuda
