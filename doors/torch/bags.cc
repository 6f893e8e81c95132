#include "bags.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "raggrad/core/error_text.h"
#include "raggrad/cpu/chunks.h"

namespace raggrad::torch_door {
namespace {

constexpr int64_t kGrain = 1 << 15;  // ids: about 10 us of work

template <class Offset>
Status CheckOffsets(const Offset* offsets, int64_t count, int64_t num_ids) {
  if (count > 0 && offsets[0] != 0) {
    return MakeError(Code::kInvalidArgument, "[offsets[0]: expected 0, got ", offsets[0], "]");
  }
  for (int64_t i = 1; i < count; ++i) {
    if (offsets[i] < offsets[i - 1]) {
      return MakeError(Code::kInvalidArgument, "[offsets[", i, "]: expected at least ", offsets[i - 1],
                       ", the offset before, got ", offsets[i], "]");
    }
  }
  if (count > 0 && offsets[count - 1] > num_ids) {
    return MakeError(Code::kInvalidArgument, "[offsets[", count - 1, "]: expected at most ", num_ids,
                     ", the number of ids, got ", offsets[count - 1], "]");
  }
  return {};
}

// Calls each(i, bag) for the ids in [begin, end).
template <class Offset, class F>
void ForEachId(const Offset* offsets, int64_t bags, int64_t begin, int64_t end, const F& each) {
  int64_t bag = std::upper_bound(offsets, offsets + bags, static_cast<Offset>(begin)) - offsets - 1;
  for (int64_t i = begin; i < end; ++bag) {
    const int64_t bag_end = bag + 1 < bags ? std::min<int64_t>(offsets[bag + 1], end) : end;
    for (; i < bag_end; ++i) each(i, bag);
  }
}

// Leaves the weights of padding out. They are moved as bytes.
template <class F>
Status KeepWeights(Bags& bags, const F& is_padding, int64_t kept, const Context& ctx) {
  if (!bags.weights) return {};
  const size_t bytes = DTypeSize(bags.weights->dtype);
  Result<Scratch<char>> memory = Scratch<char>::Make(ctx, kept * static_cast<int64_t>(bytes));
  if (!memory.ok()) return memory.status();
  const char* from = bags.weights->As<char>();
  char* to = memory->data();
  for (int64_t i = 0; i < bags.ids.dim(0); ++i, from += bytes) {
    if (is_padding(i)) continue;
    std::memcpy(to, from, bytes);
    to += bytes;
  }
  bags.kept_weights = *std::move(memory);
  bags.weights->data = bags.kept_weights.data();
  return {};
}

template <class Id, class Offset>
Status Fill(Bags& bags, const Offset* offsets, std::optional<int64_t> padding_id, const Context& ctx) {
  Executor& executor = ExecutorOf(ctx);
  const int64_t num_ids = bags.ids.dim(0);
  const Id* const ids = bags.ids.As<Id>();
  const cpu::Chunks chunks = cpu::SplitEvenly(executor, num_ids, kGrain);
  Result<Scratch<int64_t>> places = Scratch<int64_t>::Make(ctx, chunks.count);
  if (!places.ok()) return places.status();
  const auto is_padding = [&](int64_t i) { return static_cast<int64_t>(ids[i]) == *padding_id; };

  int64_t kept = num_ids;
  if (padding_id) {
    cpu::ForEachChunk(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
      int64_t count = 0;
      for (int64_t i = begin; i < end; ++i) count += !is_padding(i);
      (*places)[chunk] = count;
    });
    kept = 0;
    for (int64_t chunk = 0; chunk < chunks.count; ++chunk) kept += std::exchange((*places)[chunk], kept);
  }

  Result<Scratch<int32_t>> segment_ids = Scratch<int32_t>::Make(ctx, kept);
  if (!segment_ids.ok()) return segment_ids.status();
  int32_t* const segments = segment_ids->data();
  if (kept == num_ids) {
    cpu::ForEachChunk(executor, chunks, [&](int64_t, int64_t begin, int64_t end) {
      ForEachId(offsets, bags.count, begin, end,
                [&](int64_t i, int64_t bag) { segments[i] = static_cast<int32_t>(bag); });
    });
  } else {
    Result<Scratch<char>> kept_ids = Scratch<char>::Make(ctx, kept * static_cast<int64_t>(sizeof(Id)));
    if (!kept_ids.ok()) return kept_ids.status();
    Id* const rows = reinterpret_cast<Id*>(kept_ids->data());
    cpu::ForEachChunk(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
      int64_t place = (*places)[chunk];
      ForEachId(offsets, bags.count, begin, end, [&](int64_t i, int64_t bag) {
        if (is_padding(i)) return;
        rows[place] = ids[i];
        segments[place++] = static_cast<int32_t>(bag);
      });
    });
    bags.kept_ids = *std::move(kept_ids);
    if (Status s = KeepWeights(bags, is_padding, kept, ctx); !s.ok()) return s;
    bags.ids = TensorView::Of(rows, Shape{kept});
  }
  if (bags.weights) bags.weights->shape = Shape{kept};
  bags.kept_segment_ids = *std::move(segment_ids);
  bags.segment_ids = TensorView::Of(bags.kept_segment_ids.data(), Shape{kept});
  return {};
}

template <class Offset>
Status Cut(Bags& bags, const TensorView& offsets, bool include_last_offset, std::optional<int64_t> padding_id,
           const Context& ctx) {
  const int64_t num_offsets = offsets.dim(0);
  const Offset* const begins = offsets.As<Offset>();
  if (Status s = CheckOffsets(begins, num_offsets, bags.ids.dim(0)); !s.ok()) return s;
  bags.count = num_offsets;
  if (include_last_offset) {
    if (num_offsets == 0) {
      return MakeError(Code::kInvalidArgument,
                       "[offsets: expected at least one element with include_last_offset, got none]");
    }
    --bags.count;
    bags.ids.shape = Shape{static_cast<int64_t>(begins[num_offsets - 1])};
  }
  if (bags.count > INT32_MAX) {
    return MakeError(Code::kInvalidArgument, "[offsets: expected less than 2^31 bags, got ", bags.count, "]");
  }
  if (bags.count == 0) bags.ids.shape = Shape{0};
  bags.ids_with_padding = bags.ids.dim(0);
  return bags.ids.dtype == DType::kInt32 ? Fill<int32_t>(bags, begins, padding_id, ctx)
                                         : Fill<int64_t>(bags, begins, padding_id, ctx);
}

Status CheckIds(std::string_view argument, const TensorView& ids) {
  if (!Contains(IndexTypes{}, ids.dtype)) {
    return MakeError(Code::kInvalidArgument, "[", argument, ": expected int32 or int64, got ", ids.dtype, "]");
  }
  if (ids.rank() != 1) {
    return MakeError(Code::kInvalidArgument, "[", argument, ": expected 1 dimension, got ", ids.rank(), "]");
  }
  return {};
}

}  // namespace

Result<Bags> CutIntoBags(const BagOperands& operands, const Context& ctx) noexcept {
  const auto& [ids, offsets, weights, include_last_offset, padding_id] = operands;
  if (Status s = CheckIds("indices", ids); !s.ok()) return s;
  if (Status s = CheckIds("offsets", offsets); !s.ok()) return s;
  if (weights && !(weights->shape == ids.shape)) {
    return MakeError(Code::kInvalidArgument, "[per_sample_weights: expected shape ", ids.shape, ", got ",
                     weights->shape, "]");
  }
  Bags bags;
  bags.ids = ids;
  bags.weights = weights;
  const Status cut = offsets.dtype == DType::kInt32 ? Cut<int32_t>(bags, offsets, include_last_offset, padding_id, ctx)
                                                    : Cut<int64_t>(bags, offsets, include_last_offset, padding_id, ctx);
  if (!cut.ok()) return cut;
  return Result<Bags>(std::move(bags));
}

}  // namespace raggrad::torch_door
