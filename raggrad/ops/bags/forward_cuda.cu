// GPU backend: every id looks for its bag between the bags of its block's first and last id.
#include <thrust/iterator/counting_iterator.h>

#include <cub/device/device_select.cuh>
#include <utility>

#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/bags/find_bags.cuh"
#include "raggrad/ops/bags/kernels.h"

namespace raggrad::bags::on_cuda {
namespace {

using cuda::Blocks;
using cuda::Call;
using cuda::GlobalThread;
using cuda::UncapturedCall;

constexpr int kThreads = cuda::kTuning.item_threads_per_block;

// The bags of ids at ascending places; null: of all ids.
template <class Offset>
__global__ void FillSegmentIds(const Offset* offsets, int64_t bags, const int32_t* positions, int64_t n,
                               int32_t* segment_ids) {
  const auto place_of = [&](int64_t i) { return positions != nullptr ? int64_t{positions[i]} : i; };
  FindBags(offsets, bags, n, place_of, segment_ids);
}

// Makes the first segment id invalid if the offsets do not ascend from 0 to at most n.
template <class Offset>
__global__ void RefuseBadOffsets(const Offset* offsets, int64_t count, int64_t n, int32_t* segment_ids) {
  const int64_t i = GlobalThread();
  if (i < count && IsBadOffset(offsets, i, n)) segment_ids[0] = -1;
}

template <class Offset>
__global__ void ReadLastOffset(const Offset* offsets, int64_t count, uint64_t* word) {
  *word = static_cast<uint64_t>(offsets[count - 1]);
}

template <class Id>
struct IsNoPadding {
  const Id* ids;
  int64_t padding_id;
  __device__ bool operator()(int32_t place) const { return static_cast<int64_t>(ids[place]) != padding_id; }
};

template <class E>
__global__ void GatherKernel(const E* from, const int32_t* positions, int64_t count, E* to) {
  if (const int64_t i = GlobalThread(); i < count) to[i] = from[positions[i]];
}

template <class E>
__global__ void SpreadKernel(const E* from, const int32_t* positions, int64_t count, E* to) {
  if (const int64_t i = GlobalThread(); i < count) to[positions[i]] = from[i];
}

__global__ void CountUp(int64_t count, int32_t* places) {
  if (const int64_t i = GlobalThread(); i < count) places[i] = static_cast<int32_t>(i);
}

// Calls f<E>() with a type that has as many bytes as an element.
template <class F>
Status WithBits(DType dtype, const F& f) {
  switch (DTypeSize(dtype)) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    default:
      return f.template operator()<uint64_t>();
  }
}

template <class Id>
Status FindKept(const UncapturedCall& call, const TensorView& ids, int64_t padding_id, int32_t* positions,
                int64_t& kept) {
  const auto word = Scratch<uint64_t>::Make(call.device_memory(), 1);
  if (!word.ok()) return word.status();
  auto* const count = const_cast<uint64_t*>(word->data());
  Status selected = call.RunCub([&](void* memory, size_t& bytes) {
    return cub::DeviceSelect::If(memory, bytes, thrust::counting_iterator<int32_t>(0), positions, count,
                                 static_cast<int32_t>(ids.dim(0)), IsNoPadding<Id>{ids.As<Id>(), padding_id},
                                 call.stream);
  });
  if (!selected.ok()) return selected;
  uint64_t host = 0;
  if (Status s = call.ReadBack(count, {&host, 1}); !s.ok()) return s;
  kept = static_cast<int64_t>(host);
  return {};
}

Status Gather(const Call& call, const int32_t* positions, int64_t count, TensorView& view, Scratch<char>& memory) {
  auto kept = Scratch<char>::Make(call.device_memory(), count * static_cast<int64_t>(DTypeSize(view.dtype)));
  if (!kept.ok()) return kept.status();
  Status gathered = WithBits(view.dtype, [&]<class E>() -> Status {
    if (count == 0) return {};
    return call.Launch(GatherKernel<E>, Blocks(count, kThreads), kThreads, view.As<E>(), positions, count,
                       reinterpret_cast<E*>(kept->data()));
  });
  if (!gathered.ok()) return gathered;
  memory = *std::move(kept);
  view = {memory.data(), view.dtype, Shape{count}, view.device};
  return {};
}

Status LeavePaddingOut(const UncapturedCall& call, int64_t padding_id, Bags& bags) {
  const int64_t n = bags.ids.dim(0);
  if (n == 0) return {};
  auto positions = Scratch<int32_t>::Make(call.device_memory(), n);
  if (!positions.ok()) return positions.status();
  int64_t kept = 0;
  Status found = bags.ids.dtype == DType::kInt32
                     ? FindKept<int32_t>(call, bags.ids, padding_id, positions->data(), kept)
                     : FindKept<int64_t>(call, bags.ids, padding_id, positions->data(), kept);
  if (!found.ok() || kept == n) return found;
  bags.position_memory = *std::move(positions);
  bags.positions = TensorView{bags.position_memory.data(), DType::kInt32, Shape{kept}, bags.ids.device};
  const int32_t* const places = bags.position_memory.data();
  if (Status s = Gather(call, places, kept, bags.ids, bags.id_memory); !s.ok()) return s;
  return bags.weights ? Gather(call, places, kept, *bags.weights, bags.weight_memory) : Status();
}

template <class Offset>
Result<int64_t> LastOffset(const UncapturedCall& call, const Offset* offsets, int64_t count) {
  const auto word = Scratch<uint64_t>::Make(call.device_memory(), 1);
  if (!word.ok()) return word.status();
  auto* const last = const_cast<uint64_t*>(word->data());
  if (Status s = call.Launch(ReadLastOffset<Offset>, 1, 1, offsets, count, last); !s.ok()) return s;
  uint64_t host = 0;
  if (Status s = call.ReadBack(last, {&host, 1}); !s.ok()) return s;
  return static_cast<int64_t>(host);
}

template <class Offset>
Status CutWith(const Call& call, const Offset* offsets, const BagOperands& operands, Bags& bags) {
  const int64_t num_offsets = operands.offsets.dim(0);
  int64_t n = bags.count == 0 ? 0 : operands.ids.dim(0);
  if (operands.include_last_offset && n > 0) {
    const auto waiting = UncapturedCall::From(call);
    if (!waiting.ok()) return waiting.status();
    const Result<int64_t> last = LastOffset(*waiting, offsets, num_offsets);
    if (!last.ok()) return last.status();
    if (*last >= 0 && *last < n) n = *last;
  }
  bags.ids.shape = Shape{n};
  if (bags.weights) bags.weights->shape = Shape{n};
  if (operands.padding_id) {
    const auto waiting = UncapturedCall::From(call);
    if (!waiting.ok()) return waiting.status();
    if (Status s = LeavePaddingOut(*waiting, *operands.padding_id, bags); !s.ok()) return s;
  }
  const int64_t kept = bags.ids.dim(0);
  auto segment_ids = Scratch<int32_t>::Make(call.device_memory(), kept);
  if (!segment_ids.ok()) return segment_ids.status();
  bags.segment_memory = *std::move(segment_ids);
  int32_t* const segments = bags.segment_memory.data();
  bags.segment_ids = TensorView{segments, DType::kInt32, Shape{kept}, bags.ids.device};
  if (kept == 0) return {};
  const int32_t* const positions = bags.positions ? bags.positions->As<int32_t>() : nullptr;
  Status filled = call.Launch(FillSegmentIds<Offset>, Blocks(kept, kIdsPerBlock), kThreads, offsets, bags.count,
                              positions, kept, segments);
  if (!filled.ok()) return filled;
  return call.Launch(RefuseBadOffsets<Offset>, Blocks(num_offsets, kThreads), kThreads, offsets, num_offsets,
                     operands.ids.dim(0), segments);
}

}  // namespace

Status Cut(const BagOperands& operands, const Context& ctx, Bags& bags) noexcept {
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  const TensorView& offsets = operands.offsets;
  return offsets.dtype == DType::kInt32 ? CutWith(*call, offsets.As<int32_t>(), operands, bags)
                                        : CutWith(*call, offsets.As<int64_t>(), operands, bags);
}

Result<Tensor> Spread(const TensorView& positions, const TensorView& values, int64_t n, const Context& ctx) noexcept {
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  Result<Tensor> output = cuda::AllocateOutput(*call, 0, values.dtype, Shape{n});
  if (!output.ok()) return output;
  const int64_t count = values.dim(0);
  if (Status s = call->Fill(output->data(), 0, static_cast<size_t>(n) * DTypeSize(values.dtype)); !s.ok()) return s;
  Status spread = WithBits(values.dtype, [&]<class E>() -> Status {
    if (count == 0) return {};
    return call->Launch(SpreadKernel<E>, Blocks(count, kThreads), kThreads, values.As<E>(), positions.As<int32_t>(),
                        count, output->As<E>());
  });
  if (!spread.ok()) return spread;
  return output;
}

Result<Scratch<int32_t>> Places(int64_t count, const Context& ctx) noexcept {
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  auto places = Scratch<int32_t>::Make(call->device_memory(), count);
  if (!places.ok() || count == 0) return places;
  if (Status s = call->Launch(CountUp, Blocks(count, kThreads), kThreads, count, places->data()); !s.ok()) return s;
  return places;
}

extern "C" [[gnu::visibility("default")]] const Kernels raggrad_cuda_bags = {&Cut, &Spread, &Places};

}  // namespace raggrad::bags::on_cuda
