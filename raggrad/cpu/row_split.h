// How rows of unequal cost are cut for workers. Internal to the library.
#pragma once

#include <algorithm>
#include <cstdint>

#include "raggrad/cpu/chunks.h"

namespace raggrad::cpu {

inline constexpr int64_t kGrainBytes = 1 << 17;  // of rows read, or output zeroed, per chunk at least
inline constexpr int64_t kChunksPerWorker = 4;
inline constexpr int64_t kColumnGrain = 16;  // a hot row is cut into strips of at least one cache line of float32

// `units` of work, each a row of `row_bytes` read or written.
inline Chunks SplitRows(const Executor& executor, int64_t units, int64_t row_bytes) noexcept {
  return SplitEvenly(executor, units, std::max<int64_t>(kGrainBytes / row_bytes, 1), kChunksPerWorker);
}

// Computes all `rows` rows of `width` columns with run(row_begin, row_end, column_begin, column_end). A row is computed
// by one worker, so the order of its sum does not depend on their number. The rows' units of work lie end to end in
// `chunks`, row_at(unit) is the first row that starts there or later, length(row) at most how many units it has. The
// cut is by units, not by rows; a row with so many that it would keep one worker busy alone is cut by columns.
// CANCELLED if the caller has stopped the call and `in_place` is false; rows are missing then.
template <class RowAt, class Length, class Run>
[[nodiscard]] Status RunRows(Executor& executor, const Chunks& chunks, int64_t rows, int64_t width, const RowAt& row_at,
                             const Length& length, const Run& run, bool in_place = false) noexcept {
  if (chunks.count == 1) {
    run(int64_t{0}, rows, int64_t{0}, width);
    return {};
  }
  const int64_t strips = std::clamp<int64_t>(width / kColumnGrain, 1, executor.num_workers());
  const Chunks columns = {width, strips};
  // Strip s of every hot row, and the other rows of chunk c, are tasks. A hot row spans more than a chunk's length, so
  // it is the last to start in its chunk: looking at one row per chunk finds them all.
  const int64_t hot_length = chunks.size / chunks.count;
  RunTasks(executor, chunks.count * (strips + 1), [&](int64_t t) {
    if (!in_place && Stopped(executor)) return;
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
  return !in_place && Stopped(executor) ? StoppedError() : Status();
}

}  // namespace raggrad::cpu
