// Shares rows whose sums are exact among workers. Such a sum may be cut anywhere, so a hot row is not one worker's
// alone. Internal to the library.
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

// A row with more contributions than a chunk has units. Each part of its contributions is summed by itself, in strips
// of its columns.
struct HotRow {
  static constexpr int64_t kLeastPart = 16;     // contributions: the sums of a part take the memory of two or four
  static constexpr int64_t kLeastStrip = 4096;  // columns

  int64_t row;
  Span terms;
  int64_t parts;
  int64_t strips;
  int64_t first_part;  // of all parts of hot rows

  static HotRow Make(int64_t row, Span terms, int64_t width, int64_t chunk_length, int64_t first_part) noexcept {
    const int64_t shares = (terms.length() + chunk_length - 1) / chunk_length;
    const int64_t parts = std::clamp<int64_t>(terms.length() / kLeastPart, 1, shares);
    const int64_t strips = std::clamp<int64_t>(width / kLeastStrip, 1, (shares + parts - 1) / parts);
    return {row, terms, parts, strips, first_part};
  }
  int64_t tasks() const noexcept { return parts * strips; }
  Span part(int64_t number) const noexcept {
    const Chunks cut = {terms.length(), parts};
    return {terms.begin + cut.begin(number), terms.begin + cut.end(number)};
  }
  Span strip(int64_t number, int64_t width) const noexcept {
    const Chunks cut = {width, strips};
    return {cut.begin(number), cut.end(number)};
  }
};

// The hot rows of a call, in order.
struct HotRows {
  Scratch<HotRow> rows;
  int64_t count = 0;
  int64_t parts = 0;  // of all of them
  int64_t tasks = 0;  // strips of parts

  const HotRow& operator[](int64_t i) const noexcept { return rows[i]; }
  // The row that a part belongs to.
  const HotRow& RowOf(int64_t part) const noexcept {
    const auto starts_behind = [](int64_t p, const HotRow& hot) { return p < hot.first_part; };
    return *(std::upper_bound(rows.data(), rows.data() + count, part, starts_behind) - 1);
  }
};

// Whether the last of rows [begin, end), which start in one chunk, is hot. No other can be: a hot row is longer than a
// chunk.
template <class Job>
bool EndsHot(const Job& job, const Chunks& chunks, int64_t begin, int64_t end) noexcept {
  return begin < end && job.terms(end - 1).length() > chunks.size / chunks.count;
}

template <class Job>
Result<HotRows> FindHotRows(const Context& ctx, const Chunks& chunks, int64_t width, const Job& job) noexcept {
  HotRows hot;
  auto rows = Scratch<HotRow>::Make(ctx, chunks.count);
  if (!rows.ok()) return rows.status();
  hot.rows = *std::move(rows);
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    const int64_t end = job.row_at(chunks.end(chunk));
    if (!EndsHot(job, chunks, job.row_at(chunks.begin(chunk)), end)) continue;
    const HotRow row = HotRow::Make(end - 1, job.terms(end - 1), width, chunks.size / chunks.count, hot.parts);
    hot.rows[hot.count++] = row;
    hot.parts += row.parts;
    hot.tasks += row.tasks();
  }
  return hot;
}

// The grids of hot rows.
template <class A, class Job>
Result<Scratch<SumGrid<A>>> GridsOf(const Context& ctx, const HotRows& hot, const Job& job) noexcept {
  auto largest = Scratch<A>::Make(ctx, hot.parts);
  if (!largest.ok()) return largest.status();
  auto grids = Scratch<SumGrid<A>>::Make(ctx, hot.count);
  if (!grids.ok()) return grids.status();
  RunTasks(ExecutorOf(ctx), hot.parts, [&](int64_t part) {
    const HotRow& row = hot.RowOf(part);
    (*largest)[part] = job.Largest(row.part(part - row.first_part));
  });
  for (int64_t i = 0; i < hot.count; ++i) {
    const A* const first = largest->data() + hot[i].first_part;
    (*grids)[i] = GridOf(*std::max_element(first, first + hot[i].parts), hot[i].terms.length());
  }
  return grids;
}

// Computes `rows` rows of `width` columns. Contributions are of type A. The rows' units of work lie end to end in
// `chunks`. `job` has
//   row_at(unit)                             the first row that starts at this unit or later
//   terms(row)                               its contributions; at most as many as it has units
//   Sum(row_begin, row_end)                  computes whole rows
//   Largest(terms)                           the largest finite magnitude of some contributions of a row
//   SumPart(grid, terms, columns, sums)      their sums: [SumGrid<A>::kSums, width] doubles
//   Finish(row, grid, sums)                  makes the row of its sums
//
// Returns CANCELLED, with rows missing, if the caller has stopped the call. With `in_place` all rows are computed.
// Memory: 8 kSums bytes for each column of each part of a hot row.
template <class A, class Job>
[[nodiscard]] Status RunExactRows(const Context& ctx, const Chunks& chunks, int64_t rows, int64_t width, const Job& job,
                                  bool in_place = false) noexcept {
  if (chunks.count == 1) {
    job.Sum(int64_t{0}, rows);
    return {};
  }
  Executor& executor = ExecutorOf(ctx);
  const auto stopped = [&] { return !in_place && executor.stopped(); };
  const Result<HotRows> hot = FindHotRows(ctx, chunks, width, job);
  if (!hot.ok()) return hot.status();
  const auto grids = GridsOf<A>(ctx, *hot, job);
  if (!grids.ok()) return grids.status();
  constexpr int64_t kSums = SumGrid<A>::kSums;
  auto sums = Scratch<double>::Make(ctx, hot->parts * width * kSums);
  if (!sums.ok()) return sums.status();
  const auto sums_of = [&](const HotRow& row, int64_t part) {
    return sums->data() + (row.first_part + part) * width * kSums;
  };

  RunTasks(executor, chunks.count + hot->tasks, [&](int64_t task) {
    if (stopped()) return;
    if (task >= hot->tasks) {  // the hot rows come first: their tasks are the largest
      const int64_t begin = job.row_at(chunks.begin(task - hot->tasks));
      const int64_t end = job.row_at(chunks.end(task - hot->tasks));
      job.Sum(begin, EndsHot(job, chunks, begin, end) ? end - 1 : end);
      return;
    }
    int64_t i = 0;
    for (; task >= (*hot)[i].tasks(); ++i) task -= (*hot)[i].tasks();
    const HotRow& row = (*hot)[i];
    const int64_t part = task / row.strips;
    job.SumPart((*grids)[i], row.part(part), row.strip(task % row.strips, width), sums_of(row, part));
  });
  if (stopped()) return StoppedError();
  RunTasks(executor, hot->count, [&](int64_t i) {
    const HotRow& row = (*hot)[i];
    double* const total = sums_of(row, 0);
    for (int64_t part = 1; part < row.parts; ++part) {
      const double* const more = sums_of(row, part);
      for (int64_t c = 0; c < width * kSums; ++c) total[c] += more[c];
    }
    job.Finish(row.row, (*grids)[i], total);
  });
  return {};
}

}  // namespace raggrad::cpu
