// One term of a row's sum: which row of the table it goes to, and which row of the gradient it comes from.
// always_inline, because the row loops are compiled per instruction set and must not share functions with other code.
#pragma once

#include <cstdint>

#include "raggrad/core/sum_type.h"

namespace raggrad::sparse_segment {

// 8 bytes: for fewer than 2^32 segments, which covers every practical case.
struct Contribution {
  uint32_t row;
  uint32_t segment_;

  [[gnu::always_inline]] static Contribution Make(uint32_t row, uint64_t segment) noexcept {
    return {row, static_cast<uint32_t>(segment)};
  }
  [[gnu::always_inline]] int64_t segment() const noexcept { return segment_; }
};

// 12 bytes: for gradients of 2^32 rows and more.
struct WideContribution {
  uint32_t row;
  uint32_t segment_low;
  uint32_t segment_high;

  [[gnu::always_inline]] static WideContribution Make(uint32_t row, uint64_t segment) noexcept {
    return {row, static_cast<uint32_t>(segment), static_cast<uint32_t>(segment >> 32)};
  }
  [[gnu::always_inline]] int64_t segment() const noexcept {
    return static_cast<int64_t>((static_cast<uint64_t>(segment_high) << 32) | segment_low);
  }
};

}  // namespace raggrad::sparse_segment
