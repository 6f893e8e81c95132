#include "segment_order.h"

#include <bit>
#include <climits>
#include <cstdint>
#include <numeric>

#include "raggrad/core/error_text.h"
#include "raggrad/cpu/radix_sort.h"

namespace raggrad::torch_door {
namespace {

struct Position {
  uint32_t segment;
  int32_t place;
};

template <class Id>
Result<SegmentOrder> Order(const TensorView& segment_ids, int64_t num_segments, const Context& ctx) {
  const int64_t n = segment_ids.dim(0);
  const Id* const ids = segment_ids.As<Id>();
  bool ascending = true;
  for (int64_t i = 0; i < n; ++i) {
    if (ids[i] < 0 || ids[i] >= num_segments) {
      return MakeError(Code::kInvalidArgument, "[segment_ids[", i, "]: expected 0 to ", num_segments - 1, ", got ",
                       ids[i], "]");
    }
    ascending &= i == 0 || ids[i - 1] <= ids[i];
  }
  SegmentOrder order;
  Result<Scratch<int32_t>> memory = Scratch<int32_t>::Make(ctx, 2 * n);
  if (!memory.ok()) return memory.status();
  order.memory = *std::move(memory);
  int32_t* const positions = order.memory.data();
  int32_t* const segments = positions + n;
  order.positions = TensorView::Of(positions, Shape{n});
  order.segment_ids = TensorView::Of(segments, Shape{n});
  if (ascending) {
    std::iota(positions, positions + n, 0);
    for (int64_t i = 0; i < n; ++i) segments[i] = static_cast<int32_t>(ids[i]);
    return Result<SegmentOrder>(std::move(order));
  }
  Result<Scratch<Position>> records = Scratch<Position>::Make(ctx, 2 * n);
  if (!records.ok()) return records.status();
  for (int64_t i = 0; i < n; ++i) (*records)[i] = {static_cast<uint32_t>(ids[i]), static_cast<int32_t>(i)};
  const auto key_bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(num_segments - 1)));
  const Result<Position*> sorted = cpu::RadixSort(ctx, records->data(), records->data() + n, n, key_bits,
                                                  [](const Position& record) { return record.segment; });
  if (!sorted.ok()) return sorted.status();
  for (int64_t i = 0; i < n; ++i) {
    positions[i] = (*sorted)[i].place;
    segments[i] = static_cast<int32_t>((*sorted)[i].segment);
  }
  return Result<SegmentOrder>(std::move(order));
}

}  // namespace

Result<SegmentOrder> OrderBySegment(const TensorView& segment_ids, int64_t num_segments, const Context& ctx) noexcept {
  if (!Contains(IndexTypes{}, segment_ids.dtype)) {
    return MakeError(Code::kInvalidArgument, "[segment_ids: expected int32 or int64, got ", segment_ids.dtype, "]");
  }
  if (segment_ids.rank() != 1 || segment_ids.dim(0) > INT32_MAX) {
    return MakeError(Code::kInvalidArgument, "[segment_ids: expected 1 dimension of less than 2^31 ids, got shape ",
                     segment_ids.shape, "]");
  }
  if (num_segments < 0 || num_segments > INT32_MAX) {
    return MakeError(Code::kInvalidArgument, "[num_segments: expected 0 to ", INT32_MAX, ", got ", num_segments, "]");
  }
  return segment_ids.dtype == DType::kInt32 ? Order<int32_t>(segment_ids, num_segments, ctx)
                                            : Order<int64_t>(segment_ids, num_segments, ctx);
}

}  // namespace raggrad::torch_door
