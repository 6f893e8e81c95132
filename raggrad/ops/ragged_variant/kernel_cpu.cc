#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "raggrad/core/error_text.h"
#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/first_error.h"
#include "raggrad/ops/ragged_variant/kernels.h"

namespace raggrad::ragged_variant::cpu {
namespace {

using raggrad::cpu::Chunks;
using raggrad::cpu::FirstError;
using raggrad::cpu::ForEachChunk;
using raggrad::cpu::SplitEvenly;

constexpr int64_t kCheckGrain = 16384;     // splits or elements: some 10 us of looking at them
constexpr int64_t kCopyGrain = 128 << 10;  // bytes: some 10 us of copying
constexpr int64_t kPieceCost = 64;         // in bytes: what finding an element costs, however little it holds
constexpr int64_t kChunksPerWorker = 4;

template <class I>
Status CheckSplits(const Problem& problem, std::span<const I> splits, Parallel& parallel) noexcept {
  constexpr std::string_view kInvalid = "Invalid ragged splits: ";
  if (splits.empty()) return {};
  if (splits[0] != 0) {
    return InvalidArgument(problem.op, kInvalid, "first element of ragged splits  must be 0 but is ", splits[0],
                           " [row_splits[0]: expected 0, got ", splits[0], "]");
  }
  FirstError decreasing;
  const Chunks steps = SplitEvenly(parallel, static_cast<int64_t>(splits.size()) - 1, kCheckGrain);
  ForEachChunk(parallel, steps, [&](int64_t, int64_t begin, int64_t end) {
    const I* const last = splits.data() + end + 1;
    const I* const found = std::adjacent_find(splits.data() + begin, last, std::greater<I>{});
    if (found != last) decreasing.Report(found + 1 - splits.data());
  });
  if (!decreasing.found()) return {};
  const int64_t at = decreasing.position();
  const I value = splits[static_cast<size_t>(at)];
  const I before = splits[static_cast<size_t>(at - 1)];
  return InvalidArgument(problem.op, kInvalid, "ragged splits must be monotonically increasing, but ragged_splits[", at,
                         "]=", value, " is smaller than row_splits[", at - 1, "]=", before, " [row_splits[", at,
                         "]: expected at least ", before, ", got ", value, "]");
}

// Where the values of each element lie in the output.
struct Layout {
  Scratch<int64_t> begins;  // of each element, ascending
  int64_t total = 0;        // of values
  Shape shape;
};

template <class I>
Result<Layout> LayOut(const Problem& problem, std::span<const I> splits, const Context& ctx) noexcept {
  const auto rows = [&](int64_t i) -> std::optional<int64_t> {
    const size_t row = static_cast<size_t>(i);
    if (row + 1 >= splits.size()) return std::nullopt;
    return static_cast<int64_t>(splits[row + 1]) - static_cast<int64_t>(splits[row]);
  };
  Result<Scratch<int64_t>> begins = Scratch<int64_t>::Make(ctx, problem.n());
  if (!begins.ok()) return begins.status();
  Layout layout{*std::move(begins), 0, {}};

  Parallel& parallel = ctx.executor();
  FirstError fault;
  ForEachChunk(parallel, SplitEvenly(parallel, problem.n(), kCheckGrain), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Result<int64_t> count = CountValues(problem, i, rows(i));
      if (!count.ok()) return fault.Report(i);
      layout.begins[i] = *count;
    }
  });
  if (fault.found()) return CountValues(problem, fault.position(), rows(fault.position())).status();

  bool overflow = false;
  for (int64_t i = 0; i < problem.n() && !overflow; ++i) {
    const int64_t count = std::exchange(layout.begins[i], layout.total);
    overflow = __builtin_add_overflow(layout.total, count, &layout.total);
  }
  const std::optional<int64_t> total = overflow ? std::nullopt : std::optional(layout.total);
  Result<Shape> shape = OutputShape(problem, total, rows(0));
  if (!shape.ok()) return shape.status();
  layout.shape = *std::move(shape);
  return layout;
}

// Calls copy(at, values, count) for every run of places [at, at + count) of the output, within [begin, end), whose
// values lie together: at `values`, or nowhere (null) if they are missing. `size`: bytes per value.
template <class F>
void ForEachPiece(const Problem& problem, const Layout& layout, size_t size, int64_t begin, int64_t end,
                  const F& copy) noexcept {
  const int64_t* const begins = layout.begins.data();
  int64_t i = std::upper_bound(begins, begins + problem.n(), begin) - begins - 1;
  for (int64_t at = begin; at < end; ++i) {
    const int64_t stop = std::min(end, i + 1 < problem.n() ? begins[i + 1] : layout.total);
    const std::optional<RaggedView>& element = problem.elements[static_cast<size_t>(i)];
    const size_t skipped = static_cast<size_t>(at - begins[i]) * size;
    if (stop > at) copy(at, element ? element->values.As<std::byte>() + skipped : nullptr, stop - at);
    at = stop;
  }
}

Result<Tensor> CopyNumbers(const Problem& problem, const Layout& layout, const Context& ctx) noexcept {
  Result<Tensor> output = AllocateOutput(ctx, 0, problem.dtype, layout.shape);
  if (!output.ok() || layout.total == 0) return output;
  const size_t size = DTypeSize(problem.dtype);
  std::byte* const out = output->As<std::byte>();
  Parallel& parallel = ctx.executor();
  const int64_t cost = layout.total * static_cast<int64_t>(size) + problem.n() * kPieceCost;
  const int64_t chunks = SplitEvenly(parallel, cost, kCopyGrain, kChunksPerWorker).count;
  ForEachChunk(
      parallel, Chunks{layout.total, std::min(chunks, layout.total)}, [&](int64_t, int64_t begin, int64_t end) {
        ForEachPiece(problem, layout, size, begin, end, [&](int64_t at, const std::byte* values, int64_t count) {
          std::byte* const to = out + static_cast<size_t>(at) * size;
          const size_t bytes = static_cast<size_t>(count) * size;
          values ? std::memcpy(to, values, bytes) : std::memset(to, 0, bytes);
        });
      });
  return output;
}

size_t SaturatingAdd(size_t a, size_t b) noexcept {
  size_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<size_t>::max() : sum;
}

// Where the characters of each chunk of strings begin.
struct Characters {
  Scratch<size_t> begins;
  size_t total = 0;
};

// A sum that does not fit stays at the largest size_t, which no allocation can satisfy.
Result<Characters> CountCharacters(const Problem& problem, const Layout& layout, const Chunks& chunks,
                                   Parallel& parallel, const Context& ctx) noexcept {
  Result<Scratch<size_t>> begins = Scratch<size_t>::Make(ctx, chunks.count);
  if (!begins.ok()) return begins.status();
  Characters characters{*std::move(begins), 0};
  FirstError without_data;
  ForEachChunk(parallel, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    size_t sum = 0;
    ForEachPiece(problem, layout, sizeof(String), begin, end, [&](int64_t at, const std::byte* values, int64_t count) {
      const String* const strings = reinterpret_cast<const String*>(values);
      for (int64_t i = 0; strings != nullptr && i < count; ++i) {
        if (strings[i].data == nullptr && strings[i].size > 0) without_data.Report(at + i);
        sum = SaturatingAdd(sum, strings[i].size);
      }
    });
    characters.begins[chunk] = sum;
  });
  if (without_data.found()) {
    return InvalidArgument(problem.op, "a string has no data [encoded_ragged_grad: expected characters at place ",
                           without_data.position(), " of the result, got a null pointer]");
  }
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    const size_t count = std::exchange(characters.begins[chunk], characters.total);
    characters.total = SaturatingAdd(characters.total, count);
  }
  return characters;
}

// The output is one allocation: all elements, then all characters in the elements' order. So the characters are counted
// first, chunk by chunk; then every chunk knows where its own begin. What the copying costs is known only then: the
// chunks do not depend on it, but whether they are handed to other threads does.
Result<Tensor> CopyStrings(const Problem& problem, const Layout& layout, const Context& ctx) noexcept {
  if (layout.total == 0) return AllocateOutput(ctx, 0, problem.dtype, layout.shape);
  Parallel& parallel = ctx.executor();
  const auto if_worth_it = [&](size_t cost, int64_t grain) -> Parallel& {
    return cost >= static_cast<size_t>(grain) ? parallel : SerialParallel();
  };
  const Chunks chunks{layout.total, std::min<int64_t>(layout.total, parallel.num_workers() * kChunksPerWorker)};
  const size_t looks = static_cast<size_t>(layout.total) + problem.elements.size();
  const Result<Characters> characters =
      CountCharacters(problem, layout, chunks, if_worth_it(looks, kCopyGrain / kPieceCost), ctx);
  if (!characters.ok()) return characters.status();

  Result<Tensor> output = AllocateOutput(ctx, 0, problem.dtype, layout.shape, characters->total);
  if (!output.ok()) return output;
  String* const out = output->As<String>();
  char* const text = reinterpret_cast<char*>(out + layout.total);
  ForEachChunk(if_worth_it(output->bytes(), kCopyGrain), chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    char* to = text + characters->begins[chunk];
    ForEachPiece(problem, layout, sizeof(String), begin, end, [&](int64_t at, const std::byte* values, int64_t count) {
      const String* const strings = reinterpret_cast<const String*>(values);
      for (int64_t i = 0; i < count; ++i) {
        const size_t size = strings != nullptr ? strings[i].size : 0;
        if (size > 0) std::memcpy(to, strings[i].data, size);
        out[at + i] = {to, size};
        to += size;
      }
    });
  });
  return output;
}

}  // namespace

Result<Tensor> ToVariantGradient(const Problem& problem, const Context& ctx) noexcept {
  const Result<Layout> layout = Visit(IndexTypes{}, problem.row_splits.dtype, [&]<class I>() -> Result<Layout> {
    const size_t size = problem.row_splits.rank() == 0 ? 0 : static_cast<size_t>(problem.row_splits.dim(0));
    const std::span splits(problem.row_splits.As<I>(), size);
    if (Status s = CheckSplits(problem, splits, ctx.executor()); !s.ok()) return s;
    return LayOut(problem, splits, ctx);
  });
  if (!layout.ok()) return layout.status();
  if (problem.dtype == DType::kString) return CopyStrings(problem, *layout, ctx);
  return CopyNumbers(problem, *layout, ctx);
}

}  // namespace raggrad::ragged_variant::cpu
