// Cuts rows of unequal cost for workers. Internal to the library.
#pragma once

#include <algorithm>
#include <cstdint>

#include "raggrad/cpu/chunks.h"

namespace raggrad::cpu {

inline constexpr int64_t kGrainBytes = 1 << 17;  // least bytes of rows read, or output zeroed, per chunk
inline constexpr int64_t kChunksPerWorker = 4;
inline constexpr int64_t kColumnGrain = 16;  // a hot row is cut into strips of at least one cache line of float32

// Cuts `units` of work, each of which reads or writes a row of `row_bytes`.
inline Chunks SplitRows(const Executor& executor, int64_t units, int64_t row_bytes) noexcept {
  return SplitEvenly(executor, units, std::max<int64_t>(kGrainBytes / row_bytes, 1), kChunksPerWorker);
}

// Computes `rows` rows of `width` columns with run(row_begin, row_end, column_begin, column_end). Each sum is computed
// by one worker, so its order does not depend on their number.
//
// The rows' units of work lie end to end in `chunks`. row_at(unit) is the first row that starts at this unit or later;
// length(row) is at most its number of units. Work is cut by units, not by rows; a hot row, which has more units than a
// chunk, is cut by columns.
//
// Returns CANCELLED, with rows missing, if the caller has stopped the call. With `in_place` all rows are computed.
template <class RowAt, class Length, class Run>
[[nodiscard]] Status RunRows(Executor& executor, const Chunks& chunks, int64_t rows, int64_t width, const RowAt& row_at,
                             const Length& length, const Run& run, bool in_place = false) noexcept {
  if (chunks.count == 1) {
    run(int64_t{0}, rows, int64_t{0}, width);
    return {};
  }
  const int64_t strips = std::clamp<int64_t>(width / kColumnGrain, 1, executor.num_workers());
  const Chunks columns = {width, strips};
  // A task is one strip of a chunk's hot row, or all other rows of the chunk. A hot row is longer than a chunk, so it
  // is the last one to start in its chunk: looking at one row per chunk finds them all.
  const int64_t hot_length = chunks.size / chunks.count;
  RunTasks(executor, chunks.count * (strips + 1), [&](int64_t t) {
    if (!in_place && executor.stopped()) return;
    const int64_t chunk = t / (strips + 1);
    const int64_t strip = t % (strips + 1) - 1;
    const int64_t begin = row_at(chunks.begin(chunk));
    const int64_t end = row_at(chunks.end(chunk));
    if (begin == end) return;  // a long row covers the chunk
    const bool hot_end = strips > 1 && length(end - 1) > hot_length;
    if (strip < 0) {
      run(begin, hot_end ? end - 1 : end, int64_t{0}, width);
    } else if (hot_end) {
      run(end - 1, end, columns.begin(strip), columns.end(strip));
    }
  });
  return !in_place && executor.stopped() ? StoppedError() : Status();
}

}  // namespace raggrad::cpu
