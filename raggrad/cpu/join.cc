#include "raggrad/cpu/join.h"

#include <cstring>
#include <utility>

#include "raggrad/core/error_text.h"
#include "raggrad/core/scratch.h"
#include "raggrad/cpu/first_error.h"
#include "raggrad/cpu/strings.h"

namespace raggrad::cpu {
namespace {

constexpr size_t kParallelCost = 2 * kCopyGrain;  // SplitEvenly makes one chunk of anything smaller

Executor& ExecutorFor(const Context& ctx, size_t cost) noexcept {
  return cost < kParallelCost ? SerialExecutor() : ExecutorOf(ctx);
}

int64_t NumPieces(const Joined& joined) noexcept { return static_cast<int64_t>(joined.pieces.size()); }

int64_t NumValues(const Joined& joined) noexcept { return joined.shape.NumElements().value_or(0); }

// Pieces that are copied, a repeated one every time.
int64_t NumCopies(const Joined& joined) noexcept {
  if (joined.repeated == 0) return NumPieces(joined);
  return NumPieces(joined) - 1 + (NumValues(joined) - joined.pieces.back().begin) / joined.repeated;
}

// Asks for the beginning of a run before its turn comes: runs may lie anywhere in memory. The processor asks by itself
// for the rest of long ones.
void FetchAhead(const void* run, size_t bytes) noexcept {
  constexpr size_t kBytes = 512, kCacheLine = 64;
  if (run == nullptr) return;
  const auto* const data = static_cast<const std::byte*>(run);
  __builtin_prefetch(data);
  if (bytes < kBytes) return;
  for (size_t i = kCacheLine; i < kBytes; i += kCacheLine) __builtin_prefetch(data + i);
}

// Values that lie together, and where they go: the places [at, at + count) of the tensor.
struct Run {
  int64_t at, count;
  const std::byte* values;  // null: the pieces have no data

  bool Continues(const Run& before, size_t value_bytes) const noexcept {
    if (values == nullptr || before.values == nullptr) return values == before.values;
    return values == before.values + static_cast<size_t>(before.count) * value_bytes;
  }
};

// Calls copy(at, values, count) for every run within the places [begin, end) of the tensor. Pieces that lie one behind
// the other, as slices of one array do, are one run: a call of memcpy takes 3 ns more than its bytes.
template <class F>
void ForEachPiece(const Joined& joined, int64_t begin, int64_t end, const F& copy) noexcept {
  const Piece* const pieces = joined.pieces.data();
  const int64_t n = NumPieces(joined);
  const int64_t total = NumValues(joined);
  const size_t value_bytes = DTypeSize(joined.dtype);
  Run run{begin, 0, nullptr};  // not copied yet
  const auto add = [&](const Run& next) {
    if (run.count > 0 && next.Continues(run, value_bytes)) {
      run.count += next.count;
      return;
    }
    if (next.values != run.values) FetchAhead(next.values, static_cast<size_t>(next.count) * value_bytes);
    if (run.count > 0) copy(run.at, run.values, run.count);
    run = next;
  };
  const auto begin_of = [&](int64_t i) { return i < n ? pieces[i].begin : total; };
  ForEachRun(n, begin_of, begin, end, [&](int64_t i, int64_t at, int64_t count) {
    const auto* const data = static_cast<const std::byte*>(pieces[i].data);
    const auto value_at = [&](int64_t place) { return data ? data + static_cast<size_t>(place) * value_bytes : data; };
    const int64_t place = at - pieces[i].begin;
    if (joined.repeated == 0 || i + 1 < n) return add({at, count, value_at(place)});
    for (int64_t done = 0; done < count;) {
      const int64_t start = (place + done) % joined.repeated;
      const int64_t length = std::min(joined.repeated - start, count - done);
      add({at + done, length, value_at(start)});
      done += length;
    }
  });
  if (run.count > 0) copy(run.at, run.values, run.count);
}

Result<Tensor> JoinNumbers(const Joined& joined, const Context& ctx) noexcept {
  Result<Tensor> output = AllocateOutput(ctx, joined.output, joined.dtype, joined.shape);
  if (!output.ok()) return output;
  const int64_t total = NumValues(joined);
  const size_t value_bytes = DTypeSize(joined.dtype);
  const int64_t cost = CopyCost(total, value_bytes, NumCopies(joined));
  Executor& executor = ExecutorFor(ctx, static_cast<size_t>(cost));
  std::byte* const out = output->As<std::byte>();
  const auto copy_chunk = [&](int64_t, int64_t begin, int64_t end) {
    ForEachPiece(joined, begin, end, [&](int64_t at, const std::byte* values, int64_t count) {
      std::byte* const to = out + static_cast<size_t>(at) * value_bytes;
      const size_t bytes = static_cast<size_t>(count) * value_bytes;
      values ? std::memcpy(to, values, bytes) : std::memset(to, 0, bytes);
    });
  };
  Status copied = ForEachChunkUntilStopped(executor, SplitCopy(executor, total, cost), copy_chunk);
  if (!copied.ok()) return copied;
  return output;
}

// Calls f(at, strings) for the runs of strings in [begin, end) that have data.
template <class F>
void ForEachStrings(const Joined& joined, int64_t begin, int64_t end, const F& f) noexcept {
  ForEachPiece(joined, begin, end, [&](int64_t at, const std::byte* values, int64_t count) {
    if (values) f(at, std::span(reinterpret_cast<const String*>(values), static_cast<size_t>(count)));
  });
}

// Reading many strings is worth threads by itself. Few are read twice: here, to see whether copying their characters is
// worth threads, and then by the chunks.
size_t CostOfStrings(const Joined& joined) noexcept {
  const int64_t total = NumValues(joined);
  const size_t looks = static_cast<size_t>(total) + joined.pieces.size();
  if (looks >= kParallelCost / kPieceCost) return kParallelCost;
  size_t cost = looks * kPieceCost;
  ForEachStrings(joined, 0, total,
                 [&](int64_t, std::span<const String> strings) { cost = CountCharacters(strings, cost); });
  return cost;
}

// Where the characters of each chunk of strings begin. One chunk needs no scratch.
struct Characters {
  size_t& begin(int64_t chunk) noexcept { return many.data() != nullptr ? many[chunk] : one; }
  size_t begin(int64_t chunk) const noexcept { return many.data() != nullptr ? many[chunk] : one; }

  Scratch<size_t> many;
  size_t one = 0;
  size_t total = 0;
};

Result<Characters> CountInChunks(const Joined& joined, const Chunks& chunks, Executor& executor,
                                 const Context& ctx) noexcept {
  Result<Scratch<size_t>> many = Scratch<size_t>::Make(ctx, chunks.count > 1 ? chunks.count : 0);
  if (!many.ok()) return many.status();
  Characters characters{*std::move(many)};
  FirstError without_data;
  const auto count_chunk = [&](int64_t chunk, int64_t begin, int64_t end) {
    size_t sum = 0;
    ForEachStrings(joined, begin, end, [&](int64_t at, std::span<const String> strings) {
      const auto bad = std::ranges::find_if(strings, HasNoData);
      if (bad != strings.end()) without_data.Report(at + (bad - strings.begin()));
      sum = CountCharacters(strings, sum);
    });
    characters.begin(chunk) = sum;
  };
  if (Status s = ForEachChunkUntilStopped(executor, chunks, count_chunk); !s.ok()) return s;
  if (without_data.found()) {
    return MakeError(Code::kInvalidArgument, "a string has no data [", joined.argument,
                     ": expected characters at place ", without_data.position(), " of the result, got a null pointer]");
  }
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    const size_t count = std::exchange(characters.begin(chunk), characters.total);
    characters.total = SaturatingAdd(characters.total, count);
  }
  return characters;
}

// The characters are counted first, chunk by chunk, so that every chunk knows where its own begin.
Result<Tensor> JoinStrings(const Joined& joined, const Context& ctx) noexcept {
  const int64_t total = NumValues(joined);
  const size_t cost = CostOfStrings(joined);
  Executor& executor = ExecutorFor(ctx, cost);
  const int64_t most_chunks = cost < kParallelCost ? 1 : executor.num_workers() * kCopyChunksPerWorker;
  const Chunks chunks{total, std::min(total, most_chunks)};
  const Result<Characters> characters = CountInChunks(joined, chunks, executor, ctx);
  if (!characters.ok()) return characters.status();

  Result<Tensor> output = AllocateOutput(ctx, joined.output, joined.dtype, joined.shape, characters->total);
  if (!output.ok()) return output;
  String* const out = output->As<String>();
  char* const text = reinterpret_cast<char*>(out + total);
  const auto copy_chunk = [&](int64_t chunk, int64_t begin, int64_t end) {
    char* to = text + characters->begin(chunk);
    ForEachPiece(joined, begin, end, [&](int64_t at, const std::byte* values, int64_t count) {
      if (values == nullptr) {
        std::fill_n(out + at, count, String{to, 0});
      } else {
        to = CopyStrings({reinterpret_cast<const String*>(values), static_cast<size_t>(count)}, out + at, to);
      }
    });
  };
  Status copied = ForEachChunkUntilStopped(executor, chunks, copy_chunk);
  if (!copied.ok()) return copied;
  return output;
}

}  // namespace

Result<Tensor> Join(const Joined& joined, const Context& ctx) noexcept {
  if (ctx.executor != nullptr && ctx.executor->stopped()) return StoppedError();
  if (NumValues(joined) == 0) {  // or too many to be counted, which AllocateOutput reports
    return AllocateOutput(ctx, joined.output, joined.dtype, joined.shape);
  }
  return joined.dtype == DType::kString ? JoinStrings(joined, ctx) : JoinNumbers(joined, ctx);
}

}  // namespace raggrad::cpu
