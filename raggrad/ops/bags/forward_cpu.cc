#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "raggrad/cpu/chunks.h"
#include "raggrad/ops/bags/kernels.h"

namespace raggrad::bags::on_cpu {
namespace {

using cpu::ForEachChunk;

constexpr int64_t kGrain = 1 << 15;  // ids: about 10 us of work

// Calls each(i, bag) for the ids in [begin, end).
template <class Offset, class F>
void ForEachId(const Offset* offsets, int64_t bags, int64_t begin, int64_t end, const F& each) {
  int64_t bag = std::upper_bound(offsets, offsets + bags, static_cast<Offset>(begin)) - offsets - 1;
  for (int64_t i = begin; i < end; ++bag) {
    const int64_t bag_end = bag + 1 < bags ? std::min<int64_t>(offsets[bag + 1], end) : end;
    for (; i < bag_end; ++i) each(i, bag);
  }
}

// Copies the elements at the positions, whatever their type.
Result<Scratch<char>> Gather(const TensorView& from, const int32_t* positions, int64_t count, const Context& ctx) {
  const size_t bytes = DTypeSize(from.dtype);
  Result<Scratch<char>> memory = Scratch<char>::Make(ctx, count * static_cast<int64_t>(bytes));
  if (!memory.ok()) return memory;
  Executor& executor = ExecutorOf(ctx);
  ForEachChunk(executor, cpu::SplitEvenly(executor, count, kGrain), [&](int64_t, int64_t begin, int64_t end) {
    char* to = memory->data() + static_cast<size_t>(begin) * bytes;
    for (int64_t i = begin; i < end; ++i, to += bytes) {
      std::memcpy(to, from.As<char>() + static_cast<size_t>(positions[i]) * bytes, bytes);
    }
  });
  return memory;
}

// The places of ids that are no padding.
template <class Id>
Result<Scratch<int32_t>> FindKept(const TensorView& ids, int64_t padding_id, const Context& ctx, int64_t& kept) {
  Executor& executor = ExecutorOf(ctx);
  const Id* const id = ids.As<Id>();
  const cpu::Chunks chunks = cpu::SplitEvenly(executor, ids.dim(0), kGrain);
  Result<Scratch<int64_t>> places = Scratch<int64_t>::Make(ctx, chunks.count);
  if (!places.ok()) return places.status();
  ForEachChunk(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    (*places)[chunk] = end - begin - std::count(id + begin, id + end, padding_id);
  });
  kept = 0;
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) kept += std::exchange((*places)[chunk], kept);
  Result<Scratch<int32_t>> positions = Scratch<int32_t>::Make(ctx, kept == ids.dim(0) ? 0 : kept);
  if (!positions.ok() || kept == ids.dim(0)) return positions;
  ForEachChunk(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    int32_t* place = positions->data() + (*places)[chunk];
    for (int64_t i = begin; i < end; ++i) {
      if (static_cast<int64_t>(id[i]) != padding_id) *place++ = static_cast<int32_t>(i);
    }
  });
  return positions;
}

Status LeavePaddingOut(int64_t padding_id, const Context& ctx, Bags& bags) {
  int64_t kept = 0;
  auto positions = bags.ids.dtype == DType::kInt32 ? FindKept<int32_t>(bags.ids, padding_id, ctx, kept)
                                                   : FindKept<int64_t>(bags.ids, padding_id, ctx, kept);
  if (!positions.ok()) return positions.status();
  if (kept == bags.ids.dim(0)) return {};
  bags.position_memory = *std::move(positions);
  bags.positions = TensorView::Of(bags.position_memory.data(), Shape{kept});
  const auto gather = [&](TensorView& view, Scratch<char>& memory) -> Status {
    Result<Scratch<char>> kept_elements = Gather(view, bags.position_memory.data(), kept, ctx);
    if (!kept_elements.ok()) return kept_elements.status();
    memory = *std::move(kept_elements);
    view = {memory.data(), view.dtype, Shape{kept}, {}};
    return {};
  };
  if (Status s = gather(bags.ids, bags.id_memory); !s.ok()) return s;
  return bags.weights ? gather(*bags.weights, bags.weight_memory) : Status();
}

template <class Offset>
Status FillSegmentIds(const Offset* offsets, const Context& ctx, Bags& bags) {
  const int64_t kept = bags.ids.dim(0);
  Result<Scratch<int32_t>> segment_ids = Scratch<int32_t>::Make(ctx, kept);
  if (!segment_ids.ok()) return segment_ids.status();
  Executor& executor = ExecutorOf(ctx);
  ForEachChunk(executor, cpu::SplitEvenly(executor, kept, kGrain), [&](int64_t, int64_t begin, int64_t end) {
    int32_t* const out = segment_ids->data();
    if (!bags.positions) {
      ForEachId(offsets, bags.count, begin, end, [&](int64_t i, int64_t bag) { out[i] = static_cast<int32_t>(bag); });
    } else if (begin < end) {
      const int32_t* const positions = bags.positions->As<int32_t>();
      int64_t kept_id = begin;
      ForEachId(offsets, bags.count, positions[begin], positions[end - 1] + 1, [&](int64_t i, int64_t bag) {
        if (i == positions[kept_id]) out[kept_id++] = static_cast<int32_t>(bag);
      });
    }
  });
  bags.segment_memory = *std::move(segment_ids);
  bags.segment_ids = TensorView::Of(bags.segment_memory.data(), Shape{kept});
  return {};
}

template <class Offset>
Status CutWith(const Offset* offsets, const BagOperands& operands, const Context& ctx, Bags& bags) {
  int64_t num_ids = operands.ids.dim(0);
  if (operands.include_last_offset) num_ids = static_cast<int64_t>(offsets[bags.count]);
  if (bags.count == 0) num_ids = 0;
  bags.ids.shape = Shape{num_ids};
  if (bags.weights) bags.weights->shape = Shape{num_ids};
  if (operands.padding_id) {
    if (Status s = LeavePaddingOut(*operands.padding_id, ctx, bags); !s.ok()) return s;
  }
  return FillSegmentIds(offsets, ctx, bags);
}

}  // namespace

Status Cut(const BagOperands& operands, const Context& ctx, Bags& bags) noexcept {
  const TensorView& offsets = operands.offsets;
  return offsets.dtype == DType::kInt32 ? CutWith(offsets.As<int32_t>(), operands, ctx, bags)
                                        : CutWith(offsets.As<int64_t>(), operands, ctx, bags);
}

Result<Tensor> Spread(const TensorView& positions, const TensorView& values, int64_t n, const Context& ctx) noexcept {
  Result<Tensor> output = AllocateOutput(ctx, 0, values.dtype, Shape{n});
  if (!output.ok()) return output;
  const size_t bytes = DTypeSize(values.dtype);
  char* const out = output->As<char>();
  if (n > 0) std::memset(out, 0, static_cast<size_t>(n) * bytes);
  Executor& executor = ExecutorOf(ctx);
  ForEachChunk(executor, cpu::SplitEvenly(executor, values.dim(0), kGrain), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(out + static_cast<size_t>(positions.As<int32_t>()[i]) * bytes,
                  values.As<char>() + static_cast<size_t>(i) * bytes, bytes);
    }
  });
  return output;
}

Result<Scratch<int32_t>> Places(int64_t count, const Context& ctx) noexcept {
  Result<Scratch<int32_t>> places = Scratch<int32_t>::Make(ctx, count);
  if (!places.ok()) return places;
  Executor& executor = ExecutorOf(ctx);
  ForEachChunk(executor, cpu::SplitEvenly(executor, count, kGrain), [&](int64_t, int64_t begin, int64_t end) {
    std::iota(places->data() + begin, places->data() + end, static_cast<int32_t>(begin));
  });
  return places;
}

}  // namespace raggrad::bags::on_cpu
