// The innermost loop of the forwards: pools the rows of segments. Compiled once per instruction-set level.
#pragma once

#include <cstdint>

#include "raggrad/core/dtype.h"
#include "raggrad/core/isa.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::sparse_segment {

template <class T, class Idx>  // integers as unsigned ones, whose sums wrap
struct ForwardJob {
  SegmentCombiner combiner;
  const T* data;  // [.., width]
  int64_t width;
  const Idx* indices;  // checked
  int64_t num_ids;
  T* output;  // [.., width]

  [[gnu::always_inline]] const T* row(int64_t id) const noexcept {
    return data + static_cast<int64_t>(indices[id]) * width;
  }
};

// Segments that follow each other: number s pools the ids [starts[s], starts[s + 1]), of which there is at least one,
// into output row rows[s].
struct SegmentBatch {
  static constexpr int64_t kCapacity = 64;
  int64_t count = 0;
  int64_t rows[kCapacity];
  int64_t starts[kCapacity + 1];
};

// Columns [column_begin, column_end) of the batch's rows. Sets the floating-point mode itself.
template <Isa I, class T, class Idx>
void PoolSegments(const ForwardJob<T, Idx>& job, const SegmentBatch& batch, int64_t column_begin,
                  int64_t column_end) noexcept;

template <class T, class Idx>
using PoolSegmentsFunction = decltype(&PoolSegments<Isa::kX86V1, T, Idx>);

}  // namespace raggrad::sparse_segment
