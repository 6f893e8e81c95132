// The innermost loop of the forwards: pools the rows of segments. Compiled once per instruction-set level
// (cpu/isa_choice.h).
#pragma once

#include <cstdint>

#include "raggrad/core/dtype.h"
#include "raggrad/core/isa.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/cpu/isa_choice.h"
#include "raggrad/ops/sparse_segment/forward/checked_ids.h"
#include "raggrad/ops/sparse_segment/sparse_segment.h"

namespace raggrad::sparse_segment {

template <class T>  // integers are unsigned, so that sums wrap
struct PoolJob {
  SegmentCombiner combiner;
  const T* data;  // [.., width]
  int64_t width;
  CheckedIds indices;
  int64_t num_ids;
  T* output;                            // [.., width]
  const SumType<T>* weights = nullptr;  // [num_ids]; null: all are 1
  WeightDivisor divisor = {};
  const double* divisors = nullptr;  // D(s) of each output row; null: from the number of ids. For kReproducible

  [[gnu::always_inline]] const T* row(int64_t id) const noexcept { return data + indices[id] * width; }
};

// Segments that follow each other. The s-th pools the ids [starts[s], starts[s + 1]), at least one, into output row
// rows[s].
struct SegmentBatch {
  static constexpr int64_t kCapacity = 64;
  int64_t count = 0;
  int64_t rows[kCapacity];
  int64_t starts[kCapacity + 1];
};

// Pools columns [column_begin, column_end) of the batch's rows, in the caller's floating-point environment.
template <class T>
using PoolSegmentsFunction = void (*)(const PoolJob<T>& job, const SegmentBatch& batch, int64_t column_begin,
                                      int64_t column_end) noexcept;

template <class T>
struct PoolLoopOf {
  PoolSegmentsFunction<T> pool;
};

using PoolLoops = cpu::PerType<PoolLoopOf, JoinLists<FloatTypes, TypeList<uint8_t, uint16_t, uint32_t, uint64_t>>>;

template <Isa I>
const PoolLoops& PoolLoopsFor() noexcept;

// The same with weights (segment_pooling.h).
using WeightedPoolLoops = cpu::PerType<PoolLoopOf, FloatTypes>;

template <Isa I>
const WeightedPoolLoops& WeightedPoolLoopsFor() noexcept;

}  // namespace raggrad::sparse_segment
