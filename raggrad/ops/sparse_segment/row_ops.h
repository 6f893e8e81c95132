// Operations that the row loops of gradients and forwards share. These loops are compiled per instruction-set level, so
// everything here is a template of the level or always inlined.
#pragma once

#include <cstdint>

#include "raggrad/core/dtype.h"
#include "raggrad/core/isa.h"
#include "raggrad/cpu/convert.h"
#include "raggrad/ops/sparse_segment/plan/contribution.h"

namespace raggrad::sparse_segment {

// Columns that the gradients sum together: 256 bytes of sums of type A, which fit the vector registers.
template <class A>
inline constexpr int64_t kStrip = 256 / sizeof(A);

template <Isa I, class T>
[[gnu::always_inline]] inline void Store(const SumType<T>* sums, T* out, int64_t columns) noexcept {
  if constexpr (kIsShortFloat<T>) {
    cpu::Convert<I>::NarrowRow(sums, out, columns);
  } else {
    for (int64_t c = 0; c < columns; ++c) out[c] = sums[c];
  }
}

// Prefetches a row that a later id names: rows lie anywhere in memory, but the ids tell early which come next.
template <Isa I, class T>
[[gnu::always_inline]] inline void PrefetchRow(const T* row, int64_t columns) noexcept {
  constexpr int64_t kCacheLine = 64;
  const char* bytes = reinterpret_cast<const char*>(row);
  const int64_t size = columns * static_cast<int64_t>(sizeof(T));
  for (int64_t offset = 0; offset < size; offset += kCacheLine) __builtin_prefetch(bytes + offset);
}

}  // namespace raggrad::sparse_segment
