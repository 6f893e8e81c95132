// CPU backend of the gradient.
#include <algorithm>
#include <bit>
#include <cstddef>

#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/ops/sparse_slice/kernels.h"
#include "raggrad/ops/sparse_slice/rows.h"

namespace raggrad::sparse_slice::on_cpu {
namespace {

using cpu::Chunks;
using cpu::ForEachChunk;
using cpu::ForEachChunkUntilStopped;
using cpu::SplitEvenly;

constexpr int64_t kGrain = 8192;  // rows that pay for a thread: some 10 us of work
constexpr int64_t kChunksPerWorker = 4;
constexpr int64_t kLongestRun = 1024;  // equal rows that the start of a chunk skips at most
static_assert(kLongestRun < kGrain, "or chunks could end up without rows");
constexpr int64_t kRun = 512;       // rows that are taken at a time where all match
constexpr int64_t kBoxRows = 4096;  // output rows that share a box: few enough to stay cached until they are compared

// Elements are copied by their size: bits stay what they are, and types of one size share the code.
template <size_t kBytes>
struct Values {
  const std::byte* grad;
  std::byte* out;

  void Copy(int64_t i, int64_t j, int64_t count = 1) const noexcept {
    std::copy_n(grad + Offset(j), Offset(count), out + Offset(i));
  }
  void Zero(int64_t i, int64_t count = 1) const noexcept { std::fill_n(out + Offset(i), Offset(count), std::byte{0}); }
  static size_t Offset(int64_t elements) noexcept { return static_cast<size_t>(elements) * kBytes; }
};

struct Cursors {
  int64_t i;  // over the input
  int64_t j;  // over the output
};

// Follows the operator's rule up to the first wrong guess or the last few rows before `end`. Returns where it stopped.
//
// The guess: an input row matches if it is in the box around the next kBoxRows output rows. A row outside matches none
// of them, so only rows inside are compared, and the first that does not match ends the walk. If the output is what a
// slice keeps of the input, all rows inside match. So there is one predictable branch per word and per match, where
// comparing each row has a branch that no processor predicts when runs of matches are short.
template <size_t kBytes, size_t kDims>
Cursors WalkBoxes(Rows<kDims> rows, Values<kBytes> values, Cursors at, int64_t end) noexcept {
  while (at.i + kWord <= end && at.j < rows.m()) {
    const int64_t run = rows.MatchingRun(at.i, at.j, std::min({kRun, end - at.i, rows.m() - at.j}));
    values.Copy(at.i, at.j, run);
    at = {at.i + run, at.j + run};
    if (run == kRun || at.j == rows.m()) continue;

    const int64_t box_end = std::min(at.j + kBoxRows, rows.m());
    const Box<kDims> box = rows.OutputBox(at.j, box_end);
    while (at.i + kWord <= end && at.j < box_end) {
      values.Zero(at.i, kWord);
      int64_t next = at.i + kWord;
      for (uint64_t inside = rows.Inside(box, at.i); inside != 0; inside &= inside - 1) {
        const int64_t i = at.i + std::countr_zero(inside);
        if (!rows.Match(i, at.j)) return {i, at.j};
        values.Copy(i, at.j++);
        if (at.j == box_end) {  // the next box takes the rows from here on
          next = i + 1;
          break;
        }
      }
      at.i = next;
    }
  }
  return at;
}

// Follows the operator's rule for the input rows [begin, end), with the output's cursor at j. Returns the cursor.
template <size_t kBytes, size_t kDims>
int64_t Walk(Rows<kDims> rows, Values<kBytes> values, int64_t begin, int64_t end, int64_t j) noexcept {
  Cursors at = WalkBoxes(rows, values, {begin, j}, end);
  for (; at.i < end && at.j < rows.m(); ++at.i) {
    if (rows.Match(at.i, at.j)) {
      values.Copy(at.i, at.j++);
    } else {
      values.Zero(at.i);
    }
  }
  values.Zero(at.i, end - at.i);
  return at.j;
}

// The walk of a chunk.
struct Run {
  int64_t begin;  // the cursor before it
  int64_t end;    // the cursor after it
};

// Walks all rows, chunks of them in parallel, and returns the cursor at the end.
//
// Where the cursor stands at the start of a chunk depends on everything before it, so it is guessed: the number of
// output rows that come before the chunk's first input row. The guess is right if the rows are sorted, every output row
// has its input row, and no run of equal rows crosses the boundary. The result does not rely on it: chunk 0 is walked
// with the right cursor, 0. A chunk that is walked with the cursor of the serial rule gets the values of the serial
// rule and ends with its cursor. So each next chunk is kept if its guess is the cursor at which this one ended, and
// walked again with that cursor if not. By induction all chunks end up as the serial rule has them, sorted or not. The
// worst input costs one more serial walk.
template <size_t kBytes, size_t kDims>
Result<int64_t> WalkAll(const GradProblem& problem, Values<kBytes> values, const Context& ctx) noexcept {
  const Rows<kDims> rows(problem);
  const Chunks chunks = SplitEvenly(ExecutorOf(ctx), problem.n, kGrain, kChunksPerWorker);
  if (chunks.count == 1) return Walk(rows, values, 0, problem.n, 0);

  auto runs = Scratch<Run>::Make(ctx, chunks.count);
  if (!runs.ok()) return runs.status();
  const auto chunk_begin = [&](int64_t chunk) {
    const int64_t even = chunks.begin(chunk);
    if (chunk == 0 || chunk == chunks.count) return even;
    int64_t i = even;
    while (i < even + kLongestRun && rows.SameInput(i - 1, i)) ++i;
    return i;
  };
  const auto walk_chunk = [&](int64_t chunk, int64_t begin, int64_t cursor) {
    return Walk(rows, values, begin, chunk_begin(chunk + 1), cursor);
  };
  Status walked = ForEachChunkUntilStopped(ExecutorOf(ctx), chunks, [&](int64_t chunk, int64_t, int64_t) {
    const int64_t begin = chunk_begin(chunk);
    const int64_t guess = chunk == 0 ? 0 : rows.LowerBound(begin);
    (*runs)[chunk] = {guess, walk_chunk(chunk, begin, guess)};
  });

  if (!walked.ok()) return walked;
  int64_t cursor = (*runs)[0].end;
  for (int64_t chunk = 1; chunk < chunks.count; ++chunk) {
    const auto [begin, end] = (*runs)[chunk];
    cursor = begin == cursor ? end : walk_chunk(chunk, chunk_begin(chunk), cursor);
  }
  return cursor;
}

// Without columns every row matches, and without gradients none does: the gradients come first, zeros follow.
template <size_t kBytes>
void CopyThenZero(const GradProblem& problem, Values<kBytes> values, Executor& executor) noexcept {
  const Chunks chunks = SplitEvenly(executor, problem.n, 16 * kGrain);
  ForEachChunk(executor, chunks, [&](int64_t, int64_t begin, int64_t end) {
    const int64_t copied = std::clamp(problem.m, begin, end);
    if (copied > begin) values.Copy(begin, begin, copied - begin);
    values.Zero(copied, end - copied);
  });
}

template <size_t kBytes>
Result<int64_t> Propagate(const GradProblem& problem, Values<kBytes> values, const Context& ctx) noexcept {
  if (problem.m == 0 || problem.input_start.empty()) {
    CopyThenZero(problem, values, ExecutorOf(ctx));
    return problem.m;
  }
  switch (problem.input_start.size()) {
    case 1:
      return WalkAll<kBytes, 1>(problem, values, ctx);
    case 2:
      return WalkAll<kBytes, 2>(problem, values, ctx);
    case 3:
      return WalkAll<kBytes, 3>(problem, values, ctx);
    case 4:
      return WalkAll<kBytes, 4>(problem, values, ctx);
    default:
      return WalkAll<kBytes, kAnyDims>(problem, values, ctx);
  }
}

}  // namespace

Result<Tensor> Grad(const GradProblem& problem, const Context& ctx) noexcept {
  const TensorView& grad = problem.backprop_val_grad;
  auto val_grad = AllocateOutput(ctx, 0, grad.dtype, Shape{problem.n});
  if (!val_grad.ok()) return val_grad;
  const Result<int64_t> used = Visit(ValueTypes{}, grad.dtype, [&]<class T>() -> Result<int64_t> {
    const Values<sizeof(T)> values{grad.As<std::byte>(), val_grad->template As<std::byte>()};
    return Propagate(problem, values, ctx);
  });
  if (!used.ok()) return used.status();
  if (*used < problem.m) return NotAllPropagated(problem, *used);
  return val_grad;
}

}  // namespace raggrad::sparse_slice::on_cpu
