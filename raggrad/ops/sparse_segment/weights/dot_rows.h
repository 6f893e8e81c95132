// The innermost loop of the weights' gradient: products of rows of the gradient and of the table. Compiled once per
// instruction-set level (cpu/isa_choice.h).
#pragma once

#include <cstdint>

#include "raggrad/core/dtype.h"
#include "raggrad/core/isa.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/cpu/isa_choice.h"

namespace raggrad::sparse_segment {

inline constexpr int64_t kDotLanes = 16;  // partial sums of a dot product, for every type and level

template <class T, class Idx>
struct DotJob {
  const T* data;  // [.., width]
  int64_t width;
  const Idx* indices;  // checked
  int64_t num_ids;
  SumType<T>* dots;  // [num_ids]

  [[gnu::always_inline]] const T* row(int64_t id) const noexcept {
    return data + static_cast<int64_t>(indices[id]) * width;
  }
};

// Sets dots[id] to the dot product of `grad` and the row of id, for ids [begin, end) of one segment, in the caller's
// floating-point environment.
template <class T, class Idx>
using DotRowsFunction = void (*)(const DotJob<T, Idx>& job, const T* grad, int64_t begin, int64_t end) noexcept;

template <class T>
struct DotLoopsOf {
  DotRowsFunction<T, int32_t> narrow;
  DotRowsFunction<T, int64_t> wide;

  template <class Idx>
  DotRowsFunction<T, Idx> dot() const noexcept {
    if constexpr (std::is_same_v<Idx, int32_t>) {
      return narrow;
    } else {
      return wide;
    }
  }
};

using DotLoops = cpu::PerType<DotLoopsOf, FloatTypes>;

template <Isa I>
const DotLoops& DotLoopsFor() noexcept;

}  // namespace raggrad::sparse_segment
