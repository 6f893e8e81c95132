// A sum of single numbers that has the same bits in every order (core/sum_grid.h). Shared by all devices.
#pragma once

#include <cstdint>

#include "raggrad/core/sum_grid.h"

namespace raggrad::sparse_segment {

// All terms are looked at before the first one is added. Terms are not subnormal, or count as zero.
template <class A>
class OrderFreeSum {
 public:
  constexpr void Look(A term) noexcept {
    const A magnitude = term < 0 ? -term : term;
    if (magnitude > largest_ && magnitude - magnitude == 0) largest_ = magnitude;
    ++count_;
  }
  // Ends the look at terms. Without any, the sum is 0.
  constexpr void BeginToAdd() noexcept { grid_ = GridOf(largest_, count_ > 0 ? count_ : 1); }

  constexpr void Add(A term) noexcept {
    if constexpr (SumGrid<A>::kSums == 1) {
      sums_[0] += (static_cast<double>(term) + grid_.magic) - grid_.magic;
    } else {
      const double scaled = term * grid_.scale;
      const double rounded = (scaled + grid_.magic) - grid_.magic;
      sums_[0] += rounded;
      sums_[1] += ((scaled - rounded) + grid_.magic2) - grid_.magic2;
    }
  }
  constexpr A Round() const noexcept {
    if constexpr (SumGrid<A>::kSums == 1) {
      return RoundSum(grid_, sums_[0]);
    } else {
      return RoundSums(grid_, sums_[0], sums_[1], 1.0);
    }
  }

 private:
  A largest_ = 0;
  int64_t count_ = 0;
  SumGrid<A> grid_ = {};
  double sums_[SumGrid<A>::kSums] = {};
};

// The sum of term(i) over [begin, end), which is not empty.
template <class A, class F>
A SumOrderFree(int64_t begin, int64_t end, const F& term) noexcept {
  OrderFreeSum<A> sum;
  for (int64_t i = begin; i < end; ++i) sum.Look(term(i));
  sum.BeginToAdd();
  for (int64_t i = begin; i < end; ++i) sum.Add(term(i));
  return sum.Round();
}

}  // namespace raggrad::sparse_segment
