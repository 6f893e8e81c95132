// The grid of a row's contributions (core/sum_grid.h), and which of them have to be rounded to it. Compiled per
// instruction-set level, so everything here is a template of the level or always inlined.
//
// Terms are the contributions of a call, numbered as its rows need them:
//   T               type of the values
//   kScaled         whether they have factors
//   width           columns
//   count           of all contributions; those behind the current ones are prefetched
//   row(k)          first column of contribution k
//   factor(k)       its factor
//   magnitudes(k)   its magnitudes in all columns, with the factor
//   lies_ready      whether magnitudes(k) are looked up, not searched for in the row
//   smallest(k)     magnitudes(k).smallest, only if they are looked up
//   PrefetchDescription(k)  prefetches what factor(k) and magnitudes(k) look up
//
// RowGrid and UnknownGrid have the same members:
//   grid                 the grid
//   IsOnGrid(terms, k)   whether contribution k is added as it is
//   Prefetch(terms, k, column, columns)  prefetches columns of a contribution behind k
//   See(...)             is told of every term, two vectors or one number at a time
#pragma once

#include <cstdint>

#include "raggrad/core/isa.h"
#include "raggrad/core/sum_grid.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/ops/sparse_segment/exact_lanes.h"
#include "raggrad/ops/sparse_segment/magnitudes.h"
#include "raggrad/ops/sparse_segment/row_ops.h"

namespace raggrad::sparse_segment {

inline constexpr int64_t kExactAhead = 12;  // contributions between a prefetch and its use

// Prefetches columns of the contribution that is kExactAhead behind k.
template <Isa I, class Terms>
[[gnu::always_inline]] inline void PrefetchAhead(const Terms& terms, int64_t k, int64_t column,
                                                 int64_t columns) noexcept {
  if (k + kExactAhead < terms.count()) PrefetchRow<I>(terms.row(k + kExactAhead) + column, columns);
}

// The magnitudes of contributions [begin, end) in all columns.
template <Isa I, class Terms>
[[gnu::always_inline]] inline auto MagnitudesOfTerms(const Terms& terms, int64_t begin, int64_t end) noexcept {
  using T = typename Terms::T;
  Magnitudes<SumType<T>> found;
  if (terms.lies_ready()) {
    for (int64_t k = begin; k < end; ++k) {
      if (k + 2 * kExactAhead < terms.count()) terms.PrefetchDescription(k + 2 * kExactAhead);
      found.Include(terms.magnitudes(k));
    }
    return found;
  }
  if constexpr (!Terms::kScaled) {
    MagnitudeSearch<I, T> search;
    for (int64_t k = begin; k < end; ++k) {
      PrefetchAhead<I>(terms, k, 0, terms.width());
      search.Add(terms.row(k), terms.width());
    }
    bool all_finite;
    found = search.Get(&all_finite);
    if (all_finite) return found;
    found = {};
  }
  for (int64_t k = begin; k < end; ++k) {
    PrefetchAhead<I>(terms, k, 0, terms.width());
    found.Include(terms.magnitudes(k));
  }
  return found;
}

// The grid of a row, and which of its contributions lie on it already.
template <Isa I, class A>
struct RowGrid {
  SumGrid<A> grid;
  double on_grid_from;  // contributions without smaller magnitudes
  bool all_on_grid;

  [[gnu::always_inline]] explicit RowGrid(const SumGrid<A>& g) noexcept
      : grid(g), on_grid_from(OnGridFrom(g)), all_on_grid(false) {}
  [[gnu::always_inline]] RowGrid(const Magnitudes<A>& magnitudes, int64_t contributions) noexcept
      : RowGrid(GridOf(magnitudes.largest, contributions)) {
    all_on_grid = static_cast<double>(magnitudes.smallest) >= on_grid_from;
  }

  template <class Terms>
  [[gnu::always_inline]] bool IsOnGrid(const Terms& terms, int64_t k) const noexcept {
    return all_on_grid || (terms.lies_ready() && static_cast<double>(terms.smallest(k)) >= on_grid_from);
  }
  template <class Terms>
  [[gnu::always_inline]] void Prefetch(const Terms& terms, int64_t k, int64_t column, int64_t columns) const noexcept {
    if (terms.lies_ready()) PrefetchAhead<I>(terms, k, column, columns);
  }
  template <class... Values>
  [[gnu::always_inline]] void See(const Values&...) const noexcept {}
};

// Takes the place of a grid that is not known yet. Contributions are added as they are, and their magnitudes found on
// the way: if all turn out to lie on the grid, the sums are good. So rows are read once instead of twice. The upper
// halves of floats are searched: they have the exponents.
template <Isa I>
struct UnknownGrid {
  using Values = typename Lanes<I, float>::Values;
  using Search = MagnitudeSearch<I, BFloat16, sizeof(Values)>;
  static constexpr SumGrid<float> grid = {0};
  Search& search;

  template <class Terms>
  [[gnu::always_inline]] bool IsOnGrid(const Terms&, int64_t) const noexcept {
    return true;
  }
  template <class Terms>
  [[gnu::always_inline]] void Prefetch(const Terms& terms, int64_t k, int64_t column, int64_t columns) const noexcept {
    PrefetchAhead<I>(terms, k, column, columns);
  }
  [[gnu::always_inline]] void See(const Values& x, const Values& y) const noexcept { search.Add(UpperHalves<I>(x, y)); }
  [[gnu::always_inline]] void See(float x) const noexcept {
    search.Add(BFloat16{static_cast<uint16_t>(__builtin_bit_cast(uint32_t, x) >> 16)});
  }
};

}  // namespace raggrad::sparse_segment
