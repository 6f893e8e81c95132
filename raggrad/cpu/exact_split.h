// Cuts rows whose sums are exact for workers. Such a sum may be cut anywhere, so a hot row is no longer one worker's.
// Internal to the library.
#pragma once

#include <algorithm>
#include <cstdint>

#include "raggrad/core/scratch.h"
#include "raggrad/core/sum_grid.h"
#include "raggrad/cpu/chunks.h"

namespace raggrad::cpu {

struct Span {
  int64_t begin;
  int64_t end;

  int64_t length() const noexcept { return end - begin; }
};

// A row with more contributions than a chunk has units. `pieces` of its contributions and `strips` of its columns are
// summed by themselves.
struct HotRow {
  static constexpr int64_t kLeastPiece = 16;    // contributions: the sums of a piece take the memory of two or four
  static constexpr int64_t kLeastStrip = 4096;  // columns

  int64_t row;
  Span terms;
  int64_t pieces;
  int64_t strips;
  int64_t first_piece;  // of all pieces of hot rows

  static HotRow Make(int64_t row, Span terms, int64_t width, int64_t chunk_length, int64_t first_piece) noexcept {
    const int64_t parts = (terms.length() + chunk_length - 1) / chunk_length;
    const int64_t pieces = std::clamp<int64_t>(terms.length() / kLeastPiece, 1, parts);
    const int64_t strips = std::clamp<int64_t>(width / kLeastStrip, 1, (parts + pieces - 1) / pieces);
    return {row, terms, pieces, strips, first_piece};
  }
  Span piece(int64_t number) const noexcept {
    const Chunks cut = {terms.length(), pieces};
    return {terms.begin + cut.begin(number), terms.begin + cut.end(number)};
  }
  Span strip(int64_t number, int64_t width) const noexcept {
    const Chunks cut = {width, strips};
    return {cut.begin(number), cut.end(number)};
  }
};

// Computes `rows` rows of `width` columns. Contributions are of type A. The rows' units of work lie end to end in
// `chunks`. `job` has
//   row_at(unit)                             the first row that starts at this unit or later
//   terms(row)                               its contributions; at most as many as it has units
//   Sum(row_begin, row_end)                  computes whole rows
//   Largest(terms)                           the largest finite magnitude of some contributions of a row
//   SumPiece(grid, terms, columns, sums)     their sums: [SumGrid<A>::kSums, width] doubles
//   Finish(row, grid, sums)                  makes the row of its sums
//
// Returns CANCELLED, with rows missing, if the caller has stopped the call. With `in_place` all rows are computed.
// Memory: 8 kSums bytes for each column of each piece of a hot row.
template <class A, class Job>
[[nodiscard]] Status RunExactRows(const Context& ctx, const Chunks& chunks, int64_t rows, int64_t width, const Job& job,
                                  bool in_place = false) noexcept {
  if (chunks.count == 1) {
    job.Sum(int64_t{0}, rows);
    return {};
  }
  Executor& executor = ExecutorOf(ctx);
  const auto stopped = [&] { return !in_place && executor.stopped(); };
  // A hot row is longer than a chunk, so it is the last one to start in its chunk.
  const int64_t chunk_length = chunks.size / chunks.count;
  const auto hot_end = [&](int64_t begin, int64_t end) {
    return begin < end && job.terms(end - 1).length() > chunk_length;
  };
  auto hot_rows = Scratch<HotRow>::Make(ctx, chunks.count);
  if (!hot_rows.ok()) return hot_rows.status();
  HotRow* const hot = hot_rows->data();
  int64_t num_hot = 0, pieces = 0, tasks = 0;
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    const int64_t end = job.row_at(chunks.end(chunk));
    if (!hot_end(job.row_at(chunks.begin(chunk)), end)) continue;
    hot[num_hot] = HotRow::Make(end - 1, job.terms(end - 1), width, chunk_length, pieces);
    pieces += hot[num_hot].pieces;
    tasks += hot[num_hot].pieces * hot[num_hot].strips;
    ++num_hot;
  }
  constexpr int64_t kSums = SumGrid<A>::kSums;
  auto largest = Scratch<A>::Make(ctx, pieces);
  if (!largest.ok()) return largest.status();
  auto grids = Scratch<SumGrid<A>>::Make(ctx, num_hot);
  if (!grids.ok()) return grids.status();
  auto sums = Scratch<double>::Make(ctx, pieces * width * kSums);
  if (!sums.ok()) return sums.status();
  const auto sums_of = [&](const HotRow& h, int64_t piece) {
    return sums->data() + (h.first_piece + piece) * width * kSums;
  };

  RunTasks(executor, pieces, [&](int64_t task) {
    const HotRow& h = *(std::upper_bound(hot, hot + num_hot, task,
                                         [](int64_t t, const HotRow& other) { return t < other.first_piece; }) -
                        1);
    (*largest)[task] = job.Largest(h.piece(task - h.first_piece));
  });
  for (int64_t i = 0; i < num_hot; ++i) {
    const A* const first = largest->data() + hot[i].first_piece;
    (*grids)[i] = GridOf(*std::max_element(first, first + hot[i].pieces), hot[i].terms.length());
  }
  RunTasks(executor, chunks.count + tasks, [&](int64_t task) {
    if (stopped()) return;
    if (task >= tasks) {  // the hot rows come first: their tasks are the largest
      const int64_t begin = job.row_at(chunks.begin(task - tasks));
      const int64_t end = job.row_at(chunks.end(task - tasks));
      job.Sum(begin, hot_end(begin, end) ? end - 1 : end);
      return;
    }
    int64_t i = 0;
    for (; task >= hot[i].pieces * hot[i].strips; ++i) task -= hot[i].pieces * hot[i].strips;
    const int64_t piece = task / hot[i].strips;
    job.SumPiece((*grids)[i], hot[i].piece(piece), hot[i].strip(task % hot[i].strips, width), sums_of(hot[i], piece));
  });
  if (stopped()) return StoppedError();
  RunTasks(executor, num_hot, [&](int64_t i) {
    double* const total = sums_of(hot[i], 0);
    for (int64_t piece = 1; piece < hot[i].pieces; ++piece) {
      const double* const part = sums_of(hot[i], piece);
      for (int64_t c = 0; c < width * kSums; ++c) total[c] += part[c];
    }
    job.Finish(hot[i].row, (*grids)[i], total);
  });
  return {};
}

}  // namespace raggrad::cpu
