// How loops are cut for Executor: a few equal chunks per worker, none of them too small to be worth a thread, and none
// so large that a call could not be stopped.
#pragma once

#include <algorithm>
#include <cstdint>

#include "raggrad/core/error_text.h"
#include "raggrad/core/executor.h"
#include "raggrad/core/stoppable_executor.h"
#include "raggrad/cpu/float_environment.h"

namespace raggrad::cpu {

struct Chunks {
  int64_t size;   // of the range [0, size)
  int64_t count;  // of chunks; at least 1

  int64_t begin(int64_t chunk) const noexcept { return chunk * (size / count) + std::min(chunk, size % count); }
  int64_t end(int64_t chunk) const noexcept { return begin(chunk + 1); }
};

inline constexpr int64_t kMostGrains = 1 << 7;  // in a chunk: some 10 ms of work

// `grain`: the least number of items that pays for handing them to another thread (a hand-over costs some 5 us).
// `per_worker` > 1 evens out chunks of unequal cost.
inline Chunks SplitEvenly(const Executor& executor, int64_t size, int64_t grain, int64_t per_worker = 1) noexcept {
  const int64_t for_workers = executor.num_workers() > 1 ? executor.num_workers() * per_worker : 1;
  const int64_t grains = size / std::max<int64_t>(grain, 1);
  // Large work goes round several times, each time once to every worker: a last round for some of them would cost as
  // much as a whole one.
  const int64_t rounds = std::max<int64_t>((grains + for_workers * kMostGrains - 1) / (for_workers * kMostGrains), 1);
  return {size, std::clamp<int64_t>(grains, 1, for_workers * rounds)};
}

// body(task) for each of the tasks, on any threads, in the environment that everything is computed in.
template <class F>
void RunTasks(Executor& executor, int64_t tasks, const F& body) noexcept {
  const auto in_environment = [&](int64_t task) { InFloatEnvironment([&] { body(task); }); };
  executor.Run(tasks, in_environment);
}

// body(chunk, begin, end) for each chunk. The backend's own thread is in that environment already.
template <class F>
void ForEachChunk(Executor& executor, const Chunks& chunks, const F& body) noexcept {
  if (chunks.count == 1) {
    body(int64_t{0}, int64_t{0}, chunks.size);
    return;
  }
  RunTasks(executor, chunks.count, [&](int64_t chunk) { body(chunk, chunks.begin(chunk), chunks.end(chunk)); });
}

// Whether the caller wants no result any more.
inline bool Stopped(const Executor& executor) noexcept {
  const auto* const stoppable = dynamic_cast<const StoppableExecutor*>(&executor);
  return stoppable != nullptr && stoppable->stopped();
}

inline Status StoppedError() noexcept { return MakeError(Code::kCancelled, "the call was stopped by its caller"); }

// The same, but when the caller has stopped the call, chunks are left out: CANCELLED, and what they were to write has
// no meaning.
template <class F>
[[nodiscard]] Status ForEachChunkUntilStopped(Executor& executor, const Chunks& chunks, const F& body) noexcept {
  ForEachChunk(executor, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    if (!Stopped(executor)) body(chunk, begin, end);
  });
  return Stopped(executor) ? StoppedError() : Status();
}

}  // namespace raggrad::cpu
