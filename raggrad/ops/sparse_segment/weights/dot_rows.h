// The innermost loop of the weights' gradient: products of rows of the gradient and of the table. Compiled once per
// instruction-set level (cpu/isa_choice.h).
#pragma once

#include <cstdint>

#include "raggrad/core/dtype.h"
#include "raggrad/core/isa.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/cpu/isa_choice.h"
#include "raggrad/ops/sparse_segment/forward/checked_ids.h"

namespace raggrad::sparse_segment {

inline constexpr int64_t kDotLanes = 16;  // partial sums of a dot product, for every type and level

template <class T>
struct DotJob {
  const T* data;  // [.., width]
  int64_t width;
  CheckedIds indices;
  int64_t num_ids;
  SumType<T>* dots;  // [num_ids]

  [[gnu::always_inline]] const T* row(int64_t id) const noexcept { return data + indices[id] * width; }
};

// Sets dots[id] to the dot product of `grad` and the row of id, for ids [begin, end) of one segment, in the caller's
// floating-point environment.
template <class T>
using DotRowsFunction = void (*)(const DotJob<T>& job, const T* grad, int64_t begin, int64_t end) noexcept;

template <class T>
struct DotLoopOf {
  DotRowsFunction<T> dot;
};

using DotLoops = cpu::PerType<DotLoopOf, FloatTypes>;

template <Isa I>
const DotLoops& DotLoopsFor() noexcept;

}  // namespace raggrad::sparse_segment
