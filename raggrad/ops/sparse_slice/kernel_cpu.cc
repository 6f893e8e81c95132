// Host side and loops of the CPU backend.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/ops/sparse_slice/kernels.h"

namespace raggrad::sparse_slice::cpu {
namespace {

using ::raggrad::cpu::Chunks;
using ::raggrad::cpu::ForEachChunk;
using ::raggrad::cpu::SplitEvenly;

constexpr int64_t kGrain = 8192;  // rows that pay for a thread: some 10 us of work
constexpr int64_t kChunksPerWorker = 4;
constexpr int64_t kLongestRun = 1024;  // of equal rows that the start of a chunk moves over
static_assert(kLongestRun < kGrain, "or chunks could end up without rows");
constexpr int64_t kWord = 64;       // input rows that are compared with a box at a time
constexpr int64_t kRun = 512;       // rows that are taken at a time where all match
constexpr int64_t kBoxRows = 4096;  // output rows that share a box: few enough to be in a cache when they are compared
constexpr size_t kAnyDims = 0;      // a number of columns known only at run time

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

// The least and the largest number in each column (in the first ones, if there are very many) of some rows.
template <size_t kDims>
class Box {
 public:
  static constexpr size_t kMaxColumns = kDims == kAnyDims ? 8 : kDims;

  Box(const int64_t* row, size_t columns) noexcept {
    std::copy_n(row, columns, least_.begin());
    std::copy_n(row, columns, most_.begin());
  }
  void Include(const int64_t* row, size_t columns) noexcept {
    for (size_t c = 0; c < columns; ++c) {
      least_[c] = std::min(least_[c], row[c]);
      most_[c] = std::max(most_[c], row[c]);
    }
  }
  // Whether row - start is inside; the subtraction wraps.
  bool Holds(const int64_t* row, const int64_t* start, size_t columns) const noexcept {
    bool inside = true;
    for (size_t c = 0; c < columns; ++c) {
      const uint64_t least = static_cast<uint64_t>(least_[c]);
      const uint64_t offset = static_cast<uint64_t>(row[c]) - (static_cast<uint64_t>(start[c]) + least);
      inside &= offset <= static_cast<uint64_t>(most_[c]) - least;
    }
    return inside;
  }

 private:
  std::array<int64_t, kMaxColumns> least_{};
  std::array<int64_t, kMaxColumns> most_{};
};

// The rows of both index matrices, to be compared. Passed by value: a copy whose address nobody has can stay in
// registers while bytes are written.
template <size_t kDims>
class Rows {
 public:
  explicit Rows(const Problem& problem) noexcept
      : input_(problem.input_indices), output_(problem.output_indices), m_(problem.m) {
    if constexpr (kDims == kAnyDims) {
      start_ = problem.input_start;
    } else {
      std::copy_n(problem.input_start.begin(), kDims, start_.begin());
    }
  }

  int64_t m() const noexcept { return m_; }

  // input_indices[i] == output_indices[j] + input_start
  bool Match(int64_t i, int64_t j) const noexcept {
    for (size_t c = 0; c < dims(); ++c) {
      if (Input(i)[c] != Shifted(j, c)) return false;
    }
    return true;
  }

  // How many of the next `limit` rows of both match, one by one, up to the first two that do not.
  int64_t MatchingRun(int64_t i, int64_t j, int64_t limit) const noexcept {
    int64_t run = 0;
    while (run < limit && Match(i + run, j + run)) ++run;
    return run;
  }

  Box<kDims> OutputBox(int64_t begin, int64_t end) const noexcept {
    Box<kDims> box(Output(begin), boxed());
    for (int64_t j = begin + 1; j < end; ++j) box.Include(Output(j), boxed());
    return box;
  }

  // Which of the input rows [i, i + kWord), moved by -input_start, are in the box: one bit per row.
  uint64_t Inside(const Box<kDims>& box, int64_t i) const noexcept {
    std::array<unsigned char, kWord> inside;  // first bytes, then bits: compilers vectorise that
    for (int64_t k = 0; k < kWord; ++k) {
      inside[static_cast<size_t>(k)] = box.Holds(Input(i + k), start_.data(), boxed()) ? 1 : 0;
    }
    uint64_t bits = 0;
    for (size_t k = 0; k < kWord; k += 8) {
      uint64_t eight;
      std::memcpy(&eight, &inside[k], sizeof(eight));
      bits |= (eight * 0x0102040810204080U >> 56U) << k;  // the lowest bit of each byte, side by side
    }
    return bits;
  }

  // input_indices[a] == input_indices[b]
  bool SameInput(int64_t a, int64_t b) const noexcept { return std::equal(Input(a), Input(a) + dims(), Input(b)); }

  // The number of rows of output_indices + input_start that come before input_indices[i] in lexicographic order, if
  // they are sorted; some number in [0, m] if they are not.
  int64_t LowerBound(int64_t i) const noexcept {
    int64_t first = 0;
    for (int64_t count = m_; count > 0;) {
      const int64_t half = count / 2;
      if (ComesBefore(first + half, i)) {
        first += half + 1;
        count -= half + 1;
      } else {
        count = half;
      }
    }
    return first;
  }

 private:
  size_t dims() const noexcept { return kDims == kAnyDims ? start_.size() : kDims; }
  size_t boxed() const noexcept { return std::min(dims(), Box<kDims>::kMaxColumns); }
  const int64_t* Input(int64_t i) const noexcept { return input_ + i * static_cast<int64_t>(dims()); }
  const int64_t* Output(int64_t j) const noexcept { return output_ + j * static_cast<int64_t>(dims()); }
  int64_t Shifted(int64_t j, size_t c) const noexcept {  // wraps, as TensorFlow's does
    return static_cast<int64_t>(static_cast<uint64_t>(Output(j)[c]) + static_cast<uint64_t>(start_[c]));
  }
  bool ComesBefore(int64_t j, int64_t i) const noexcept {
    for (size_t c = 0; c < dims(); ++c) {
      if (Shifted(j, c) != Input(i)[c]) return Shifted(j, c) < Input(i)[c];
    }
    return false;
  }

  const int64_t* input_;
  const int64_t* output_;
  std::conditional_t<kDims == kAnyDims, std::span<const int64_t>, std::array<int64_t, kDims>> start_;
  int64_t m_;
};

struct Cursors {
  int64_t i;  // over the input
  int64_t j;  // over the output
};

// The operator's rule, up to a guess that is wrong or the last few rows before `end`. Returns where it stopped.
//
// The guess: an input row matches if it is in the box around the next kBoxRows output rows. A row outside matches none
// of them, so only those inside are compared; the first that does not match ends the walk. If the output is what a
// slice keeps of the input, all do. That leaves one branch per word and per match to foresee, where comparing each row
// has one that no processor foresees when runs of matches are short.
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
        if (at.j == box_end) {  // rows from here on are for the next box
          next = i + 1;
          break;
        }
      }
      at.i = next;
    }
  }
  return at;
}

// The operator's rule for the input rows [begin, end), with the cursor over the output at j. Returns the cursor.
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

struct Run {
  int64_t begin;  // the cursor a chunk was walked with
  int64_t end;    // and where it was afterwards
};

// Walks all rows, chunks of them in parallel, and returns the cursor at the end.
//
// Where the cursor stands at the start of a chunk depends on everything before it, so it is guessed: the number of
// output rows that come before the chunk's first input row. That is right when the rows are sorted, no output row is
// without its input row, and no run of equal rows crosses the boundary. But nothing relies on it. The cursor starts at
// 0, and that is what chunk 0 is walked with; if a chunk was walked with the cursor the serial rule would have had
// there, then its values and the cursor at its end are the serial rule's, too. So, chunk by chunk: if the next one was
// walked with the cursor at which this one ended, it stands; if not, it is walked again, with that cursor. By induction
// all chunks end up as the serial rule has them, sorted or not. The worst input costs one serial walk more.
template <size_t kBytes, size_t kDims>
Result<int64_t> WalkAll(const Problem& problem, Values<kBytes> values, const Context& ctx) noexcept {
  const Rows<kDims> rows(problem);
  const Chunks chunks = SplitEvenly(ctx.executor(), problem.n, kGrain, kChunksPerWorker);
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
  ForEachChunk(ctx.executor(), chunks, [&](int64_t chunk, int64_t, int64_t) {
    const int64_t begin = chunk_begin(chunk);
    const int64_t guess = chunk == 0 ? 0 : rows.LowerBound(begin);
    (*runs)[chunk] = {guess, walk_chunk(chunk, begin, guess)};
  });

  int64_t cursor = (*runs)[0].end;
  for (int64_t chunk = 1; chunk < chunks.count; ++chunk) {
    const auto [begin, end] = (*runs)[chunk];
    cursor = begin == cursor ? end : walk_chunk(chunk, chunk_begin(chunk), cursor);
  }
  return cursor;
}

// Without columns every row matches, and without gradients none does: the gradients come first, zeros follow.
template <size_t kBytes>
void CopyThenZero(const Problem& problem, Values<kBytes> values, Parallel& parallel) noexcept {
  const Chunks chunks = SplitEvenly(parallel, problem.n, 16 * kGrain);
  ForEachChunk(parallel, chunks, [&](int64_t, int64_t begin, int64_t end) {
    const int64_t copied = std::clamp(problem.m, begin, end);
    if (copied > begin) values.Copy(begin, begin, copied - begin);
    values.Zero(copied, end - copied);
  });
}

template <size_t kBytes>
Result<int64_t> Propagate(const Problem& problem, Values<kBytes> values, const Context& ctx) noexcept {
  if (problem.m == 0 || problem.input_start.empty()) {
    CopyThenZero(problem, values, ctx.executor());
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

Result<Tensor> Grad(const Problem& problem, const Context& ctx) noexcept {
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

}  // namespace raggrad::sparse_slice::cpu
