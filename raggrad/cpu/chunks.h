// Cuts loops for an executor: a few equal chunks per worker, each large enough to be worth a thread and small enough
// that a call can be stopped soon.
#pragma once

#include <algorithm>
#include <cstdint>

#include "raggrad/core/error_text.h"
#include "raggrad/core/executor.h"
#include "raggrad/cpu/float_environment.h"

namespace raggrad::cpu {

struct Chunks {
  int64_t size;   // of the range [0, size)
  int64_t count;  // of chunks; at least 1

  int64_t begin(int64_t chunk) const noexcept { return chunk * (size / count) + std::min(chunk, size % count); }
  int64_t end(int64_t chunk) const noexcept { return begin(chunk + 1); }
};

inline constexpr int64_t kMostGrains = 1 << 7;  // in a chunk: about 10 ms of work

// Cuts [0, size). `grain`: the least number of items that is worth another thread (handing them over costs about 5 us).
// `per_worker` > 1 evens out chunks of unequal cost.
inline Chunks SplitEvenly(const Executor& executor, int64_t size, int64_t grain, int64_t per_worker = 1) noexcept {
  const int64_t for_workers = executor.num_workers() > 1 ? executor.num_workers() * per_worker : 1;
  const int64_t grains = size / std::max<int64_t>(grain, 1);
  // Large work takes several full rounds of chunks: a last round for only some of the workers would take as long as one
  // for all.
  const int64_t rounds = std::max<int64_t>((grains + for_workers * kMostGrains - 1) / (for_workers * kMostGrains), 1);
  return {size, std::clamp<int64_t>(grains, 1, for_workers * rounds)};
}

// Calls body(task) for each task, on any threads, in the library's floating-point environment.
template <class F>
void RunTasks(Executor& executor, int64_t tasks, const F& body) noexcept {
  const auto in_environment = [&](int64_t task) { InFloatEnvironment([&] { body(task); }); };
  executor.Run(tasks, in_environment);
}

// Calls body(chunk, begin, end) for each chunk. A single chunk runs on the calling thread, which is in that environment
// already.
template <class F>
void ForEachChunk(Executor& executor, const Chunks& chunks, const F& body) noexcept {
  if (chunks.count == 1) {
    body(int64_t{0}, int64_t{0}, chunks.size);
    return;
  }
  RunTasks(executor, chunks.count, [&](int64_t chunk) { body(chunk, chunks.begin(chunk), chunks.end(chunk)); });
}

inline Status StoppedError() noexcept { return MakeError(Code::kCancelled, "the call was stopped by its caller"); }

// The same, but skips chunks once the caller has stopped the call. It then returns CANCELLED, and the output of skipped
// chunks is undefined.
template <class F>
[[nodiscard]] Status ForEachChunkUntilStopped(Executor& executor, const Chunks& chunks, const F& body) noexcept {
  ForEachChunk(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    if (!executor.stopped()) body(chunk, begin, end);
  });
  return executor.stopped() ? StoppedError() : Status();
}

}  // namespace raggrad::cpu
