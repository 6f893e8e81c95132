// How loops are cut for Parallel: a few equal chunks per worker, none of them too small to be worth a thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "raggrad/core/parallel.h"

namespace raggrad::cpu {

struct Chunks {
  int64_t size;   // of the range [0, size)
  int64_t count;  // of chunks; at least 1

  int64_t begin(int64_t chunk) const noexcept { return chunk * (size / count) + std::min(chunk, size % count); }
  int64_t end(int64_t chunk) const noexcept { return begin(chunk + 1); }
};

// `grain`: the least number of items that pays for handing them to another thread (a hand-over costs some 5 us).
// `per_worker` > 1 evens out chunks of unequal cost.
inline Chunks SplitEvenly(const Parallel& parallel, int64_t size, int64_t grain, int64_t per_worker = 1) noexcept {
  const int64_t wanted = parallel.num_workers() > 1 ? parallel.num_workers() * per_worker : 1;
  return {size, std::clamp<int64_t>(size / std::max<int64_t>(grain, 1), 1, wanted)};
}

// body(chunk, begin, end) for each chunk.
template <class F>
void ForEachChunk(Parallel& parallel, const Chunks& chunks, const F& body) noexcept {
  if (chunks.count == 1) {
    body(int64_t{0}, int64_t{0}, chunks.size);
    return;
  }
  const auto task = [&](int64_t chunk) { body(chunk, chunks.begin(chunk), chunks.end(chunk)); };
  parallel.Run(chunks.count, task);
}

}  // namespace raggrad::cpu
