// CPU backend of the forwards.
//
// Walking over the entries by row, and over the rows, takes n + rows steps: a step opens the next row, or takes the
// next entry of the open row. A row without an entry gets the default. The walk is cut into pieces of equally many
// steps, so that neither long rows nor long gaps fall to one worker. Binary searches in the rows find the cuts. The
// number of rows with entries before a piece tells where its output begins.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

#include "raggrad/core/error_text.h"
#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/first_error.h"
#include "raggrad/cpu/strings.h"
#include "raggrad/ops/sparse_fill_empty_rows/kernels.h"
#include "raggrad/ops/sparse_fill_empty_rows/row_order.h"

namespace raggrad::sparse_fill_empty_rows::on_cpu {
namespace {

using cpu::CheckStrings;
using cpu::Chunks;
using cpu::CopyStrings;
using cpu::FirstError;
using cpu::ForEachChunk;
using cpu::SplitEvenly;

constexpr int64_t kGrain = 8192;  // steps that pay for a thread: some 20 us of work
constexpr int64_t kPiecesPerWorker = 4;

// Where a piece of the walk begins.
struct Piece {
  int64_t entry;  // entries before this one belong to earlier pieces
  int64_t row;    // rows below this one belong to earlier pieces
  int64_t named;  // rows whose first entry is in this piece; after SumNamed(), in earlier pieces
};

// Where the walk stands after `step` steps, if the order is sorted; any place if it is not.
template <class Order>
Piece PieceAt(const Order& order, int64_t n, int64_t rows, int64_t step) noexcept {
  int64_t entry = 0;
  for (int64_t count = n; count > 0;) {
    const int64_t half = count / 2;
    if (entry + half + std::clamp<int64_t>(order.Row(entry + half), 0, rows) < step) {
      entry += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  const int64_t opened = entry == 0 ? 0 : std::clamp<int64_t>(order.Row(entry - 1), 0, rows - 1) + 1;
  return {entry, std::max(step - entry, opened), 0};
}

// The pieces of the walk, and one more that marks the end.
class Pieces {
 public:
  template <class Order>
  static Result<Pieces> Make(const ForwardProblem& problem, const Order& order, const Context& ctx) noexcept {
    const int64_t n = problem.n();
    const Chunks steps = SplitEvenly(ExecutorOf(ctx), n + problem.rows, kGrain, kPiecesPerWorker);
    auto pieces = Scratch<Piece>::Make(ctx, steps.count + 1);
    if (!pieces.ok()) return pieces.status();
    (*pieces)[0] = {0, 0, 0};
    for (int64_t p = 1; p < steps.count; ++p) {
      (*pieces)[p] = PieceAt(order, n, problem.rows, steps.begin(p));
      // Each entry is in one piece, also of an order that is not sorted: CountRows() checks them all.
      (*pieces)[p].entry = std::max((*pieces)[p].entry, (*pieces)[p - 1].entry);
    }
    (*pieces)[steps.count] = {n, problem.rows, 0};
    return Pieces(*std::move(pieces), steps.count);
  }

  Piece& operator[](int64_t p) noexcept { return pieces_[p]; }
  const Piece& operator[](int64_t p) const noexcept { return pieces_[p]; }

  // Calls body(p, begin, end) for each piece.
  template <class F>
  void ForEach(Executor& executor, const F& body) const noexcept {
    ForEachChunk(executor, Chunks{count_, count_},
                 [&](int64_t p, int64_t, int64_t) { body(p, pieces_[p], pieces_[p + 1]); });
  }

  // Replaces each piece's number of named rows by the number before it. Returns the total.
  int64_t SumNamed() noexcept {
    int64_t sum = 0;
    for (int64_t p = 0; p < count_; ++p) sum += std::exchange(pieces_[p].named, sum);
    return sum;
  }

 private:
  Pieces(Scratch<Piece> pieces, int64_t count) noexcept : pieces_(std::move(pieces)), count_(count) {}

  Scratch<Piece> pieces_;
  int64_t count_;
};

// Checks all rows and counts those that occur. Returns false if they do not ascend; then the pieces and the counts mean
// nothing.
template <class Order>
Result<bool> CountRows(const ForwardProblem& problem, const Order& order, Pieces& pieces, Executor& executor) noexcept {
  FirstError out_of_range;
  std::atomic<bool> sorted = true;
  pieces.ForEach(executor, [&](int64_t p, const Piece& begin, const Piece& end) {
    int64_t previous = begin.entry == 0 ? -1 : order.Row(begin.entry - 1);
    int64_t named = 0;
    bool ascending = true;
    for (int64_t k = begin.entry; k < end.entry; ++k) {
      const int64_t row = order.Row(k);
      if (static_cast<uint64_t>(row) >= static_cast<uint64_t>(problem.rows)) return out_of_range.Report(k);
      named += row != previous ? 1 : 0;
      ascending &= row >= previous;
      previous = row;
    }
    pieces[p].named = named;
    if (!ascending) sorted.store(false, std::memory_order_relaxed);
  });
  if (!out_of_range.found()) return sorted.load(std::memory_order_relaxed);
  return NoSuchRow(problem, out_of_range.position(), order.Row(out_of_range.position()));
}

// A few hundred steps of a piece. They are collected first; then one loop copies values and one copies indices. These
// loops depend on sizes only, and the steps are still in the nearest cache.
struct Block {
  static constexpr size_t kSize = 256;
  struct Move {
    int64_t entry;
    int64_t place;
  };
  struct Gap {
    int64_t row;
    int64_t place;
  };
  std::array<Move, kSize> moves;
  std::array<Gap, kSize> gaps;
  size_t num_moves = 0;
  size_t num_gaps = 0;
};

// Elements are copied by their size: bits stay what they are, and types of one size share the code.
template <size_t kBytes>
void PlaceValues(const Block& block, const void* values, const void* default_value, void* out) noexcept {
  const auto copy = [](const void* from, int64_t i, void* to, int64_t j) {
    std::copy_n(static_cast<const std::byte*>(from) + static_cast<size_t>(i) * kBytes, kBytes,
                static_cast<std::byte*>(to) + static_cast<size_t>(j) * kBytes);
  };
  for (size_t k = 0; k < block.num_moves; ++k) copy(values, block.moves[k].entry, out, block.moves[k].place);
  for (size_t k = 0; k < block.num_gaps; ++k) copy(default_value, 0, out, block.gaps[k].place);
}
using PlaceValuesFunction = void (*)(const Block&, const void*, const void*, void*) noexcept;

// kDims: the number of columns, or 0 if it is known only at run time.
template <int64_t kDims>
void PlaceIndices(const Block& block, const int64_t* indices, int64_t columns, int64_t* out) noexcept {
  const int64_t d = kDims == 0 ? columns : kDims;
  for (size_t k = 0; k < block.num_moves; ++k) {
    std::copy_n(indices + block.moves[k].entry * d, d, out + block.moves[k].place * d);
  }
  for (size_t k = 0; k < block.num_gaps; ++k) {
    int64_t* const to = out + block.gaps[k].place * d;
    to[0] = block.gaps[k].row;
    std::fill(to + 1, to + d, 0);
  }
}
using PlaceIndicesFunction = void (*)(const Block&, const int64_t*, int64_t, int64_t*) noexcept;

PlaceIndicesFunction ChoosePlaceIndices(int64_t d) noexcept {
  switch (d) {
    case 1:
      return PlaceIndices<1>;
    case 2:
      return PlaceIndices<2>;
    case 3:
      return PlaceIndices<3>;
    default:
      return PlaceIndices<0>;
  }
}

struct Destination {
  int64_t* indices;
  void* values;
  bool* empty;
  int64_t* reverse_index_map;
};

template <class Order>
void WritePiece(const ForwardProblem& problem, const Order& order, const Piece& begin, const Piece& end,
                PlaceValuesFunction place_values, const Destination& out) noexcept {
  const PlaceIndicesFunction place_indices = ChoosePlaceIndices(problem.d);
  Block block;
  const auto flush = [&] {
    place_values(block, problem.values.data, problem.default_value, out.values);
    place_indices(block, problem.indices, problem.d, out.indices);
    block.num_moves = block.num_gaps = 0;
  };
  int64_t place = begin.entry + begin.row - begin.named;
  int64_t row = begin.row;
  const auto open_empty_rows = [&](int64_t stop) {
    for (; row < stop; ++row) {
      out.empty[row] = true;
      block.gaps[block.num_gaps++] = {row, place++};
      if (block.num_gaps == Block::kSize) flush();
    }
  };
  for (int64_t k = begin.entry; k < end.entry; ++k) {
    const int64_t entry_row = order.Row(k);
    if (entry_row >= row) {
      open_empty_rows(entry_row);
      out.empty[row++] = false;
    }
    const int64_t entry = order.Entry(k);
    out.reverse_index_map[entry] = place;
    block.moves[block.num_moves++] = {entry, place++};
    if (block.num_moves == Block::kSize) flush();
  }
  open_empty_rows(end.row);
  flush();
}

// The outputs that are allocated before the entries are read.
struct EarlyOutputs {
  Tensor empty_row_indicator;
  Tensor reverse_index_map;
};

// `pieces` are those of `order`, which is sorted.
template <class Order>
Result<SparseFillEmptyRowsOutput> Write(const ForwardProblem& problem, const Order& order, Pieces& pieces,
                                        EarlyOutputs early, const Context& ctx) noexcept {
  const int64_t n_full = problem.n() + problem.rows - pieces.SumNamed();
  auto output_indices = AllocateOutput(ctx, 0, DType::kInt64, problem.OutputIndicesShape(n_full));
  if (!output_indices.ok()) return output_indices.status();
  const auto write_with = [&](PlaceValuesFunction place_values, void* output_values) {
    const Destination out{output_indices->As<int64_t>(), output_values, early.empty_row_indicator.As<bool>(),
                          early.reverse_index_map.As<int64_t>()};
    pieces.ForEach(ExecutorOf(ctx), [&](int64_t, const Piece& begin, const Piece& end) {
      WritePiece(problem, order, begin, end, place_values, out);
    });
  };
  auto output_values = Visit(FillTypes{}, problem.values.dtype, [&]<class T>() -> Result<Tensor> {
    if constexpr (std::is_same_v<T, String>) {
      auto placed = Scratch<String>::Make(ctx, n_full);
      if (!placed.ok()) return placed.status();
      write_with(PlaceValues<sizeof(String)>, placed->data());
      return CopyStrings(ctx, 1, Shape{n_full}, {placed->data(), static_cast<size_t>(n_full)});
    } else {
      auto values = AllocateOutput(ctx, 1, kDTypeOf<T>, Shape{n_full});
      if (values.ok()) write_with(PlaceValues<sizeof(T)>, values->data());
      return values;
    }
  });
  if (!output_values.ok()) return output_values.status();
  return SparseFillEmptyRowsOutput{*std::move(output_indices), *std::move(output_values),
                                   std::move(early.empty_row_indicator), std::move(early.reverse_index_map)};
}

template <class Number>
Result<SparseFillEmptyRowsOutput> SortAndWrite(const ForwardProblem& problem, EarlyOutputs early,
                                               const Context& ctx) noexcept {
  const auto order = SortedOrder<Number>::Make(problem, ctx);
  if (!order.ok()) return order.status();
  auto pieces = Pieces::Make(problem, *order, ctx);
  if (!pieces.ok()) return pieces.status();
  if (const Result<bool> sorted = CountRows(problem, *order, *pieces, ExecutorOf(ctx)); !sorted.ok()) {
    return sorted.status();
  }
  return Write(problem, *order, *pieces, std::move(early), ctx);
}

Status CheckValues(const ForwardProblem& problem, Executor& executor) noexcept {
  if (problem.values.dtype != DType::kString) return {};
  const std::span values(problem.values.As<String>(), static_cast<size_t>(problem.n()));
  if (Status s = CheckStrings(problem.op, "values", values, executor); !s.ok()) return s;
  return CheckStrings(problem.op, "default_value", {static_cast<const String*>(problem.default_value), 1}, executor);
}

}  // namespace

Result<SparseFillEmptyRowsOutput> Forward(const ForwardProblem& problem, const Context& ctx) noexcept {
  // Allocated first, and written only when all other memory is there: the number of rows may be anything.
  auto indicator = AllocateOutput(ctx, 2, DType::kBool, Shape{problem.rows});
  if (!indicator.ok()) return indicator.status();
  auto map = AllocateOutput(ctx, 3, DType::kInt64, Shape{problem.n()});
  if (!map.ok()) return map.status();
  if (Status s = CheckValues(problem, ExecutorOf(ctx)); !s.ok()) return s;

  const InputOrder input(problem);
  auto pieces = Pieces::Make(problem, input, ctx);
  if (!pieces.ok()) return pieces.status();
  const Result<bool> sorted = CountRows(problem, input, *pieces, ExecutorOf(ctx));
  if (!sorted.ok()) return sorted.status();
  EarlyOutputs early{*std::move(indicator), *std::move(map)};
  if (*sorted) return Write(problem, input, *pieces, std::move(early), ctx);
  constexpr int64_t kNarrow = int64_t{1} << 32;
  if (problem.n() <= kNarrow && problem.rows <= kNarrow) return SortAndWrite<uint32_t>(problem, std::move(early), ctx);
  return SortAndWrite<uint64_t>(problem, std::move(early), ctx);
}

}  // namespace raggrad::sparse_fill_empty_rows::on_cpu
