#include "raggrad/ops/sparse_segment/segment_order.h"

#include <bit>
#include <climits>
#include <cstdint>
#include <cstring>
#include <utility>

#include "raggrad/core/error_text.h"
#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/first_error.h"
#include "raggrad/cpu/radix_sort.h"

namespace raggrad {
namespace {

constexpr int64_t kGrain = 1 << 15;  // ids: about 10 us of work

struct Record {
  uint32_t segment;
  uint32_t position;
};

// The ids of one chunk that are in range.
struct Part {
  int64_t count;
  int64_t place;  // of the first one among all
  int64_t first, last;
  bool ascending;
};

template <class Id>
struct Ids {
  const Id* values;
  int64_t count;
  int64_t num_segments;

  bool InRange(int64_t i) const noexcept { return values[i] >= 0 && values[i] < num_segments; }
};

template <class Id>
Part ReadPart(const Ids<Id>& ids, int64_t begin, int64_t end, cpu::FirstError& first_bad) noexcept {
  Part part{.count = 0, .place = 0, .first = 0, .last = 0, .ascending = true};
  for (int64_t i = begin; i < end; ++i) {
    if (!ids.InRange(i)) {
      first_bad.Report(i);
      continue;
    }
    const auto id = static_cast<int64_t>(ids.values[i]);
    if (part.count++ == 0) part.first = id;
    part.ascending &= part.count == 1 || part.last <= id;
    part.last = id;
  }
  return part;
}

// Gives every part its place. Returns whether all ids in range ascend.
bool Join(Part* parts, int64_t count) noexcept {
  bool ascending = true;
  int64_t place = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < count; ++i) {
    parts[i].place = place;
    place += parts[i].count;
    if (parts[i].count == 0) continue;
    ascending &= parts[i].ascending && last <= parts[i].first;
    last = parts[i].last;
  }
  return ascending;
}

// Calls each(i, place) for the ids in range of one chunk.
template <class Id, class F>
void ForEachInRange(const Ids<Id>& ids, int64_t begin, int64_t end, int64_t place, const F& each) {
  for (int64_t i = begin; i < end; ++i) {
    if (ids.InRange(i)) each(i, place++);
  }
}

// Allocates an array as scratch is allocated: an allocator must not take it for an output of the call.
Result<Tensor> MakeTensor(DType dtype, int64_t count, const Context& ctx) noexcept {
  const size_t bytes = DTypeSize(dtype) * static_cast<size_t>(count);
  if (count == 0) return Tensor(ctx.allocator, nullptr, 0, dtype, Shape{0}, {});
  void* const data = ctx.allocator->Allocate(bytes);
  if (data == nullptr) return MakeError(Code::kResourceExhausted, "no memory for ", bytes, " bytes of positions");
  return Tensor(ctx.allocator, data, bytes, dtype, Shape{count}, {});
}

DType PositionType(int64_t count) noexcept { return count <= INT32_MAX ? DType::kInt32 : DType::kInt64; }

Result<SegmentOrder> MakeOrder(int64_t count, int64_t kept, const Context& ctx) noexcept {
  Result<Tensor> positions = MakeTensor(PositionType(count), kept, ctx);
  if (!positions.ok()) return positions.status();
  Result<Tensor> segments = MakeTensor(DType::kInt32, kept, ctx);
  if (!segments.ok()) return segments.status();
  return SegmentOrder{*std::move(positions), *std::move(segments)};
}

// Calls fill(positions) with a pointer to int32_t or int64_t.
template <class F>
Status FillPositions(Tensor& positions, const F& fill) {
  return positions.dtype() == DType::kInt32 ? fill(positions.As<int32_t>()) : fill(positions.As<int64_t>());
}

template <class Id>
Result<SegmentOrder> Sorted(const Ids<Id>& ids, const cpu::Chunks& chunks, const Part* parts, int64_t kept,
                            const Context& ctx) noexcept {
  Executor& executor = ExecutorOf(ctx);
  Result<Scratch<Record>> records = Scratch<Record>::Make(ctx, kept);
  if (!records.ok()) return records.status();
  Result<Scratch<Record>> spare = Scratch<Record>::Make(ctx, kept);
  if (!spare.ok()) return spare.status();
  Status made = cpu::ForEachChunkUntilStopped(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    ForEachInRange(ids, begin, end, parts[chunk].place, [&](int64_t i, int64_t place) {
      (*records)[place] = {static_cast<uint32_t>(ids.values[i]), static_cast<uint32_t>(i)};
    });
  });
  if (!made.ok()) return made;
  const auto key_bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(ids.num_segments - 1)));
  const Result<Record*> sorted = cpu::RadixSort(ctx, cpu::SortBuffers{records->data(), spare->data()}, kept, key_bits,
                                                [](const Record& record) { return record.segment; });
  if (!sorted.ok()) return sorted.status();
  Result<SegmentOrder> order = MakeOrder(ids.count, kept, ctx);
  if (!order.ok()) return order;
  const Record* const record = *sorted;
  auto* const segments = order->segment_ids.template As<int32_t>();
  Status filled = FillPositions(order->positions, [&]<class Position>(Position* positions) {
    return cpu::ForEachChunkUntilStopped(executor, cpu::SplitEvenly(executor, kept, kGrain),
                                         [&](int64_t, int64_t begin, int64_t end) {
                                           for (int64_t i = begin; i < end; ++i) {
                                             positions[i] = static_cast<Position>(record[i].position);
                                             segments[i] = static_cast<int32_t>(record[i].segment);
                                           }
                                         });
  });
  if (!filled.ok()) return filled;
  return order;
}

template <class Id>
Result<SegmentOrder> AsTheyCome(const Ids<Id>& ids, const cpu::Chunks& chunks, const Part* parts, int64_t kept,
                                const Context& ctx) noexcept {
  Result<SegmentOrder> order = MakeOrder(ids.count, kept, ctx);
  if (!order.ok()) return order;
  auto* const segments = order->segment_ids.template As<int32_t>();
  Status filled = FillPositions(order->positions, [&]<class Position>(Position* positions) {
    return cpu::ForEachChunkUntilStopped(ExecutorOf(ctx), chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
      ForEachInRange(ids, begin, end, parts[chunk].place, [&](int64_t i, int64_t place) {
        positions[place] = static_cast<Position>(i);
        segments[place] = static_cast<int32_t>(ids.values[i]);
      });
    });
  });
  if (!filled.ok()) return filled;
  return order;
}

enum class Wanted { kOrdered, kAsTheyCome };

template <class Id>
Result<std::optional<SegmentOrder>> Order(const Ids<Id>& ids, Wanted wanted, OutOfRange out_of_range,
                                          const Context& ctx) noexcept {
  Executor& executor = ExecutorOf(ctx);
  const cpu::Chunks chunks = cpu::SplitEvenly(executor, ids.count, kGrain);
  Result<Scratch<Part>> parts = Scratch<Part>::Make(ctx, chunks.count);
  if (!parts.ok()) return parts.status();
  cpu::FirstError first_bad;
  Status read = cpu::ForEachChunkUntilStopped(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    (*parts)[chunk] = ReadPart(ids, begin, end, first_bad);
  });
  if (!read.ok()) return read;
  if (first_bad.found() && out_of_range == OutOfRange::kError) {
    const int64_t i = first_bad.position();
    if (ids.num_segments == 0) {
      return MakeError(Code::kInvalidArgument, "a segment id is out of range [segment_ids[", i,
                       "]: expected none, as num_segments is 0, got ", ids.values[i], "]");
    }
    return MakeError(Code::kInvalidArgument, "a segment id is out of range [segment_ids[", i, "]: expected 0 to ",
                     ids.num_segments - 1, ", got ", ids.values[i], "]");
  }
  const bool in_order = Join(parts->data(), chunks.count) || wanted == Wanted::kAsTheyCome;
  if (in_order && !first_bad.found()) return std::optional<SegmentOrder>();
  const Part& last = (*parts)[chunks.count - 1];
  const auto make = in_order ? &AsTheyCome<Id> : &Sorted<Id>;
  Result<SegmentOrder> order = make(ids, chunks, parts->data(), last.place + last.count, ctx);
  if (!order.ok()) return order.status();
  return std::optional<SegmentOrder>(*std::move(order));
}

Result<std::optional<SegmentOrder>> CheckAndOrder(const TensorView& segment_ids, int64_t num_segments, Wanted wanted,
                                                  OutOfRange out_of_range, const Context& ctx) noexcept {
  if (!Contains(IndexTypes{}, segment_ids.dtype)) {
    return MakeError(Code::kInvalidArgument, "[segment_ids: expected int32 or int64, got ", segment_ids.dtype, "]");
  }
  if (segment_ids.rank() != 1 || segment_ids.dim(0) > UINT32_MAX) {
    return MakeError(Code::kInvalidArgument, "[segment_ids: expected 1 dimension of less than 2^32 ids, got shape ",
                     segment_ids.shape, "]");
  }
  if (num_segments < 0 || num_segments > INT32_MAX) {
    return MakeError(Code::kInvalidArgument, "[num_segments: expected 0 to ", INT32_MAX, ", got ", num_segments, "]");
  }
  const int64_t n = segment_ids.dim(0);
  if (segment_ids.dtype == DType::kInt32) {
    return Order(Ids<int32_t>{segment_ids.As<int32_t>(), n, num_segments}, wanted, out_of_range, ctx);
  }
  return Order(Ids<int64_t>{segment_ids.As<int64_t>(), n, num_segments}, wanted, out_of_range, ctx);
}

template <class Value>
Status Take(const Value* values, const TensorView& positions, Value* out, const Context& ctx) noexcept {
  const auto take = [&](const auto* position) {
    return cpu::ForEachChunkUntilStopped(ExecutorOf(ctx), cpu::SplitEvenly(ExecutorOf(ctx), positions.dim(0), kGrain),
                                         [&](int64_t, int64_t begin, int64_t end) {
                                           for (int64_t i = begin; i < end; ++i) out[i] = values[position[i]];
                                         });
  };
  return positions.dtype == DType::kInt32 ? take(positions.As<int32_t>()) : take(positions.As<int64_t>());
}

}  // namespace

Result<std::optional<SegmentOrder>> OrderBySegment(const TensorView& segment_ids, int64_t num_segments,
                                                   OutOfRange out_of_range, const Context& ctx) noexcept {
  return WithOp("OrderBySegment",
                [&] { return CheckAndOrder(segment_ids, num_segments, Wanted::kOrdered, out_of_range, ctx); });
}

Result<std::optional<SegmentOrder>> KeepInRange(const TensorView& segment_ids, int64_t num_segments,
                                                const Context& ctx) noexcept {
  return WithOp("KeepInRange",
                [&] { return CheckAndOrder(segment_ids, num_segments, Wanted::kAsTheyCome, OutOfRange::kDrop, ctx); });
}

Status CheckIndices(const TensorView& indices, const Segments& segments, int64_t table_rows) noexcept {
  const auto id = [](const TensorView& ids, int64_t i) {
    return ids.dtype == DType::kInt32 ? ids.As<int32_t>()[i] : ids.As<int64_t>()[i];
  };
  for (int64_t i = 0; i < indices.dim(0); ++i) {
    const int64_t segment = id(segments.ids, i), index = id(indices, i);
    const bool left_out = segment < 0 || segment >= segments.count;
    if (left_out || (index >= 0 && index < table_rows)) continue;
    if (table_rows == 0) {
      return MakeError(Code::kInvalidArgument, "[indices[", i, "]: expected none, because there are no rows]");
    }
    return MakeError(Code::kInvalidArgument, "an id is out of range [indices[", i, "]: expected 0 to ", table_rows - 1,
                     ", got ", index, "]");
  }
  return {};
}

Result<Tensor> TakeAt(const TensorView& values, const TensorView& positions, const Context& ctx) noexcept {
  Result<Tensor> out = MakeTensor(values.dtype, positions.dim(0), ctx);
  if (!out.ok()) return out;
  Status taken;  // only bits move
  switch (DTypeSize(values.dtype)) {
    case 1:
      taken = Take(values.As<uint8_t>(), positions, out->As<uint8_t>(), ctx);
      break;
    case 2:
      taken = Take(values.As<uint16_t>(), positions, out->As<uint16_t>(), ctx);
      break;
    case 4:
      taken = Take(values.As<uint32_t>(), positions, out->As<uint32_t>(), ctx);
      break;
    case 8:
      taken = Take(values.As<uint64_t>(), positions, out->As<uint64_t>(), ctx);
      break;
    default:
      return MakeError(Code::kUnimplemented, "TakeAt: no elements of dtype ", values.dtype);
  }
  if (!taken.ok()) return taken;
  return out;
}

}  // namespace raggrad
