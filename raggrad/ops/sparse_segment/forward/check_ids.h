// Checks all ids of a forward in host memory, in parallel. Internal to the family.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "raggrad/cpu/chunks.h"
#include "raggrad/ops/sparse_segment/forward/forward_checks.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/kernels.h"

namespace raggrad::sparse_segment::on_cpu {

inline constexpr int64_t kIdGrain = 1 << 14;  // ids checked per chunk at least

// The number of output rows.
inline Result<int64_t> RowsOf(const ForwardProblem& p) noexcept {
  return VisitIds(p, [&]<class Idx, class Seg>() {
    return OutputRows<Idx>(p, p.n() == 0 ? Seg{0} : p.segment_ids.As<Seg>()[p.n() - 1]);
  });
}

template <class Idx, class Seg>
Status CheckIdsOf(const ForwardProblem& p, Executor& executor, int64_t rows) noexcept {
  if (p.n() == 0) return {};
  const Idx* indices = p.indices.As<Idx>();
  const Seg* ids = p.segment_ids.As<Seg>();
  const int64_t data_rows = p.data.dim(0);
  std::atomic<bool> fault = !InRange(ids[0], rows) || !InRange(ids[p.n() - 1], rows);
  const cpu::Chunks chunks = cpu::SplitEvenly(executor, p.n(), kIdGrain);
  Status looked = cpu::ForEachChunkUntilStopped(executor, chunks, [&](int64_t, int64_t begin, int64_t end) {
    bool valid = true;  // no branch per id, so the loops vectorise
    for (int64_t i = begin; i < end; ++i) valid &= InRange(indices[i], data_rows);
    for (int64_t i = std::max<int64_t>(begin, 1); i < end; ++i) valid &= ids[i - 1] <= ids[i];
    if (!valid) fault.store(true, std::memory_order_relaxed);
  });
  if (!looked.ok()) return looked;
  return fault ? FirstFault<Idx, Seg>(p, rows) : Status();
}

inline Status CheckIds(const ForwardProblem& p, Executor& executor, int64_t rows) noexcept {
  return VisitIds(p, [&]<class Idx, class Seg>() { return CheckIdsOf<Idx, Seg>(p, executor, rows); });
}

}  // namespace raggrad::sparse_segment::on_cpu
