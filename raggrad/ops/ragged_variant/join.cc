#include "raggrad/ops/ragged_variant/join.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <utility>

#include "raggrad/core/error_text.h"
#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/first_error.h"
#include "raggrad/cpu/strings.h"
#include "raggrad/cuda/loader.h"

namespace raggrad::ragged_variant::on_cpu {
namespace {

using cpu::Chunks;
using cpu::CopyStrings;
using cpu::CountCharacters;
using cpu::FirstError;
using cpu::ForEachChunk;
using cpu::ForEachChunkUntilStopped;
using cpu::HasNoData;
using cpu::SaturatingAdd;
using cpu::SplitEvenly;

// Calls copy(at, values, count) for every run of places [at, at + count) of the output, within [begin, end), whose
// values lie together: at `values`, or nowhere (null) if they are missing. `size`: bytes per value.
template <class F>
void ForEachPiece(const Joined& joined, size_t size, int64_t begin, int64_t end, const F& copy) noexcept {
  const auto n = static_cast<int64_t>(joined.pieces.size());
  const Piece* const pieces = joined.pieces.data();
  const int64_t total = joined.total();
  const auto begin_of = [&](int64_t i) { return i < n ? pieces[i].begin : total; };
  ForEachRun(n, begin_of, begin, end, [&](int64_t i, int64_t at, int64_t count) {
    const auto* const data = static_cast<const std::byte*>(pieces[i].data);
    copy(at, data ? data + static_cast<size_t>(at - pieces[i].begin) * size : nullptr, count);
  });
}

Result<Tensor> JoinNumbers(const Joined& joined, const Context& ctx) noexcept {
  Result<Tensor> output = AllocateOutput(ctx, joined.output, joined.dtype, joined.shape);
  if (!output.ok() || output->bytes() == 0) return output;
  const int64_t total = joined.total();
  const size_t size = DTypeSize(joined.dtype);
  std::byte* const out = output->As<std::byte>();
  Executor& executor = ExecutorOf(ctx);
  const int64_t cost = total * static_cast<int64_t>(size) + static_cast<int64_t>(joined.pieces.size()) * kPieceCost;
  const int64_t chunks = SplitEvenly(executor, cost, kCopyGrain, kChunksPerWorker).count;
  const auto join = [&](int64_t, int64_t begin, int64_t end) {
    ForEachPiece(joined, size, begin, end, [&](int64_t at, const std::byte* values, int64_t count) {
      std::byte* const to = out + static_cast<size_t>(at) * size;
      const size_t bytes = static_cast<size_t>(count) * size;
      values ? std::memcpy(to, values, bytes) : std::memset(to, 0, bytes);
    });
  };
  Status copied = ForEachChunkUntilStopped(executor, Chunks{total, std::min(chunks, total)}, join);
  if (!copied.ok()) return copied;
  return output;
}

// Where the characters of each chunk of strings begin.
struct Characters {
  Scratch<size_t> begins;
  size_t total = 0;
};

Result<Characters> CountCharacters(const Joined& joined, const Chunks& chunks, Executor& executor,
                                   const Context& ctx) noexcept {
  Result<Scratch<size_t>> begins = Scratch<size_t>::Make(ctx, chunks.count);
  if (!begins.ok()) return begins.status();
  Characters characters{*std::move(begins), 0};
  FirstError without_data;
  ForEachChunk(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    size_t sum = 0;
    ForEachPiece(joined, sizeof(String), begin, end, [&](int64_t at, const std::byte* values, int64_t count) {
      if (values == nullptr) return;
      const std::span strings(reinterpret_cast<const String*>(values), static_cast<size_t>(count));
      const auto bad = std::ranges::find_if(strings, HasNoData);
      if (bad != strings.end()) without_data.Report(at + (bad - strings.begin()));
      sum = CountCharacters(strings, sum);
    });
    characters.begins[chunk] = sum;
  });
  if (without_data.found()) {
    return InvalidArgument(joined.op, "a string has no data [", joined.argument, ": expected characters at place ",
                           without_data.position(), " of the result, got a null pointer]");
  }
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    const size_t count = std::exchange(characters.begins[chunk], characters.total);
    characters.total = SaturatingAdd(characters.total, count);
  }
  return characters;
}

// The characters are counted first, chunk by chunk; then every chunk knows where its own begin. What the copying costs
// is known only then: the chunks do not depend on it, but whether they are handed to other threads does.
Result<Tensor> JoinStrings(const Joined& joined, const Context& ctx) noexcept {
  const int64_t total = joined.total();
  if (total == 0) return AllocateOutput(ctx, joined.output, joined.dtype, joined.shape);
  Executor& executor = ExecutorOf(ctx);
  const auto if_worth_it = [&](size_t cost, int64_t grain) -> Executor& {
    return cost >= static_cast<size_t>(grain) ? executor : SerialExecutor();
  };
  const Chunks chunks{total, std::min<int64_t>(total, executor.num_workers() * kChunksPerWorker)};
  const size_t looks = static_cast<size_t>(total) + joined.pieces.size();
  const Result<Characters> characters =
      CountCharacters(joined, chunks, if_worth_it(looks, kCopyGrain / kPieceCost), ctx);
  if (!characters.ok()) return characters.status();

  Result<Tensor> output = AllocateOutput(ctx, joined.output, joined.dtype, joined.shape, characters->total);
  if (!output.ok()) return output;
  String* const out = output->As<String>();
  char* const text = reinterpret_cast<char*>(out + total);
  ForEachChunk(if_worth_it(output->bytes(), kCopyGrain), chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    char* to = text + characters->begins[chunk];
    ForEachPiece(joined, sizeof(String), begin, end, [&](int64_t at, const std::byte* values, int64_t count) {
      if (values == nullptr) {
        std::fill_n(out + at, count, String{to, 0});
      } else {
        to = CopyStrings({reinterpret_cast<const String*>(values), static_cast<size_t>(count)}, out + at, to);
      }
    });
  });
  return output;
}

template <class I>
Status CheckNumbers(std::string_view op, std::string_view argument, std::span<const I> splits,
                    std::optional<int64_t> last, Executor& executor) noexcept {
  constexpr std::string_view kInvalid = "Invalid ragged splits: ";
  if (splits[0] != 0) {
    return InvalidArgument(op, kInvalid, "first element of ragged splits  must be 0 but is ", splits[0], " [", argument,
                           "[0]: expected 0, got ", splits[0], "]");
  }
  FirstError decreasing;
  const Chunks steps = SplitEvenly(executor, static_cast<int64_t>(splits.size()) - 1, kCheckGrain);
  ForEachChunk(executor, steps, [&](int64_t, int64_t begin, int64_t end) {
    const I* const stop = splits.data() + end + 1;
    const I* const found = std::adjacent_find(splits.data() + begin, stop, std::greater<I>{});
    if (found != stop) decreasing.Report(found + 1 - splits.data());
  });
  if (decreasing.found()) {
    const int64_t at = decreasing.position();
    const I value = splits[static_cast<size_t>(at)];
    const I before = splits[static_cast<size_t>(at - 1)];
    return InvalidArgument(op, kInvalid, "ragged splits must be monotonically increasing, but ragged_splits[", at,
                           "]=", value, " is smaller than row_splits[", at - 1, "]=", before, " [", argument, "[", at,
                           "]: expected at least ", before, ", got ", value, "]");
  }
  if (last && splits.back() != *last) {
    return InvalidArgument(op, kInvalid, "last element of ragged splits must be the number of ragged values(", *last,
                           ") but is ", splits.back(), " [", argument, "[", splits.size() - 1, "]: expected ", *last,
                           ", got ", splits.back(), "]");
  }
  return {};
}

}  // namespace

Status CheckSplits(std::string_view op, std::string_view argument, const TensorView& splits,
                   std::optional<int64_t> last, Executor& executor) noexcept {
  return Visit(IndexTypes{}, splits.dtype, [&]<class I>() -> Status {
    const std::span numbers(splits.As<I>(), static_cast<size_t>(splits.dim(0)));
    return CheckNumbers(op, argument, numbers, last, executor);
  });
}

Result<Tensor> Join(const Joined& joined, const Context& ctx) noexcept {
  if (joined.device == Device::kCuda) {
    return cuda::WithKernels<cuda::BatchedCopy>(joined.op, [&](const cuda::BatchedCopy& kernels) {
      return cuda::JoinListed(kernels, joined.pieces, joined.output, joined.dtype, joined.shape, ctx);
    });
  }
  return joined.dtype == DType::kString ? JoinStrings(joined, ctx) : JoinNumbers(joined, ctx);
}

Result<Tensor> Copy(std::string_view op, std::string_view argument, int output, const TensorView& view,
                    const Context& ctx) noexcept {
  const Piece whole = {view.data, 0};
  return Join({op, argument, output, {&whole, 1}, view.dtype, view.shape, view.device}, ctx);
}

}  // namespace raggrad::ragged_variant::on_cpu
