// Sums of Accumulation::kReproducible over the columns of rows, for gradients and forwards (core/sum_grid.h has the
// arithmetic, row_grid.h says what Terms and grids are). Compiled per instruction-set level, so everything here is a
// template of the level or always inlined.
#pragma once

#include <cstdint>
#include <type_traits>

#include "raggrad/core/isa.h"
#include "raggrad/core/sum_grid.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/ops/sparse_segment/exact_lanes.h"
#include "raggrad/ops/sparse_segment/row_grid.h"
#include "raggrad/ops/sparse_segment/row_ops.h"

namespace raggrad::sparse_segment {

inline constexpr int64_t kExactColumns = 256;         // columns whose sums lie on the stack while a row is summed
inline constexpr int64_t kExactBlockBytes = 1 << 14;  // of contributions that stay in L1 from strip to strip

// Where the sums of some columns go: into memory, on top of those that are there, or, for float, rounded to a row.
struct SumsInMemory {
  static constexpr bool kRounds = false;
  double* sums;
  int64_t stride;  // the second sums of double lie at sums + stride
};
struct RoundedRow {
  static constexpr bool kRounds = true;
  float* row;
};

// Adds contributions to kVectors vectors of sums in registers. `at`: their place in the target.
template <Isa I, int kVectors, class Terms, class Grid, class Target>
[[gnu::always_inline]] inline void AddVectors(const Terms& terms, const Grid& row_grid, int64_t begin, int64_t end,
                                              int64_t column, const Target& target, int64_t at) noexcept {
  using A = SumType<typename Terms::T>;
  using L = Lanes<I, A>;
  using V = typename L::Doubles;
  constexpr int kSums = SumGrid<A>::kSums;
  const SumGrid<A>& grid = row_grid.grid;
  V totals[kSums][kVectors] = {};
  if constexpr (!Target::kRounds) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      for (int g = 0; g < kSums; ++g) {
        __builtin_memcpy(&totals[g][v], target.sums + g * target.stride + at + v * L::kDoubles, sizeof(V));
      }
    }
  }
  for (int64_t k = begin; k < end; ++k) {
    row_grid.Prefetch(terms, k, column, kVectors * L::kDoubles);
    const auto* const row = terms.row(k) + column;
    [[maybe_unused]] const A factor = Terms::kScaled ? terms.factor(k) : A{1};
    const auto add = [&](const auto& to_grid) __attribute__((always_inline)) {
      [[maybe_unused]] typename L::Values even = {};
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; v += L::kParts) {
        typename L::Values x = LoadLanes<I>(row + v * L::kDoubles);
        if constexpr (Terms::kScaled) x *= factor;
        const bool is_even = v / L::kParts % 2 == 0;
        if (is_even) even = x;
        if (!is_even || kVectors == L::kParts) row_grid.See(even, x);
        if constexpr (kSums == 1) {
#pragma GCC unroll 2
          for (int part = 0; part < L::kParts; ++part) totals[0][v + part] += to_grid(ToDouble<I>(x, part));
        } else {
          x *= grid.scale;
          const V rounded = (x + grid.magic) - grid.magic;
          totals[0][v] += rounded;
          totals[1][v] += ((x - rounded) + grid.magic2) - grid.magic2;
        }
      }
    };
    if (kSums == 1 && row_grid.IsOnGrid(terms, k)) {
      add([](V x) __attribute__((always_inline)) { return x; });
    } else {
      add([&](V x) __attribute__((always_inline)) { return (x + grid.magic) - grid.magic; });
    }
  }
  if constexpr (Target::kRounds) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; v += L::kParts) {
      const typename L::Values rounded = ToFloat<I>(totals[0] + v) + 0.0F;  // RoundSum
      __builtin_memcpy(target.row + at + v * L::kDoubles, &rounded, sizeof(rounded));
    }
  } else {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {  // one by one: g++ 12 would keep a copied array in memory
      for (int g = 0; g < kSums; ++g) {
        __builtin_memcpy(target.sums + g * target.stride + at + v * L::kDoubles, &totals[g][v], sizeof(V));
      }
    }
  }
}

// The same for columns that are too few to be loaded together.
template <Isa I, class Terms, class Grid, class Target>
[[gnu::always_inline]] inline void AddFew(const Terms& terms, const Grid& row_grid, int64_t begin, int64_t end,
                                          int64_t column, int64_t columns, const Target& target, int64_t at) noexcept {
  using A = SumType<typename Terms::T>;
  const SumGrid<A>& grid = row_grid.grid;
  constexpr int kSums = SumGrid<A>::kSums;
  double totals[kSums][Lanes<I, A>::kCount] = {};
  if constexpr (!Target::kRounds) {
    for (int g = 0; g < kSums; ++g) {
      for (int64_t c = 0; c < columns; ++c) totals[g][c] = target.sums[g * target.stride + at + c];
    }
  }
  for (int64_t k = begin; k < end; ++k) {
    row_grid.Prefetch(terms, k, column, columns);
    const auto* const row = terms.row(k) + column;
    for (int64_t c = 0; c < columns; ++c) {
      A x = Load<I>(row[c]);
      if constexpr (Terms::kScaled) x *= terms.factor(k);
      row_grid.See(x);
      if constexpr (kSums == 1) {
        totals[0][c] += (static_cast<double>(x) + grid.magic) - grid.magic;
      } else {
        x *= grid.scale;
        const double rounded = (x + grid.magic) - grid.magic;
        totals[0][c] += rounded;
        totals[1][c] += ((x - rounded) + grid.magic2) - grid.magic2;
      }
    }
  }
  for (int64_t c = 0; c < columns; ++c) {
    if constexpr (Target::kRounds) {
      target.row[at + c] = RoundSum(grid, totals[0][c]);
    } else {
      for (int g = 0; g < kSums; ++g) target.sums[g * target.stride + at + c] = totals[g][c];
    }
  }
}

// Takes kVectors vectors of columns at a time, then half as many, ..., then the rest.
template <Isa I, int kVectors, class Terms, class Grid, class Target>
[[gnu::always_inline]] inline void AddParts(const Terms& terms, const Grid& grid, int64_t begin, int64_t end,
                                            int64_t column, int64_t columns, const Target& target,
                                            int64_t at) noexcept {
  using A = SumType<typename Terms::T>;
  constexpr int64_t kColumns = kVectors * Lanes<I, A>::kDoubles;
  for (; columns >= kColumns; columns -= kColumns, column += kColumns, at += kColumns) {
    AddVectors<I, kVectors>(terms, grid, begin, end, column, target, at);
  }
  if (columns == 0) return;
  if constexpr (kVectors > Lanes<I, A>::kParts) {
    AddParts<I, kVectors / 2>(terms, grid, begin, end, column, columns, target, at);
  } else {
    AddFew<I>(terms, grid, begin, end, column, columns, target, at);
  }
}

template <Isa I, class A>
inline constexpr int kSumVectors = (I == Isa::kX86V4 || I == Isa::kArmV8 ? 16 : 8) / SumGrid<A>::kSums;  // in registers

// How many contributions are taken at a time: as many as stay in the cache from strip to strip of their columns.
template <Isa I, class Terms>
[[gnu::always_inline]] inline int64_t BlockLength(int64_t columns) noexcept {
  using A = SumType<typename Terms::T>;
  if (columns <= kSumVectors<I, A> * Lanes<I, A>::kDoubles) return INT64_MAX / 2;
  return 8 + kExactBlockBytes / (columns * static_cast<int64_t>(sizeof(typename Terms::T)));
}

// Sets sums[c] to the sums of contributions [begin, end), one or more.
template <Isa I, class Terms, class Grid>
void SumTerms(const Terms& terms, const Grid& grid, int64_t begin, int64_t end, int64_t column, int64_t columns,
              double* sums, int64_t stride) noexcept {
  using A = SumType<typename Terms::T>;
  for (int g = 0; g < SumGrid<A>::kSums; ++g) {
    for (int64_t c = 0; c < columns; ++c) sums[g * stride + c] = 0;
  }
  int64_t block = BlockLength<I, Terms>(columns);
  if (end - begin > block) {  // blocks of one length
    const int64_t blocks = (end - begin + block - 1) / block;
    block = (end - begin + blocks - 1) / blocks;
  }
  for (; begin < end; begin += block) {
    AddParts<I, kSumVectors<I, A>>(terms, grid, begin, begin + block < end ? begin + block : end, column, columns,
                                   SumsInMemory{sums, stride}, 0);
  }
}

// The same for any number of columns, [column, column_end). The sums of column c lie at sums + c.
template <Isa I, class Terms, class A>
[[gnu::always_inline]] inline void SumColumns(const Terms& terms, const SumGrid<A>& grid, int64_t begin, int64_t end,
                                              int64_t column, int64_t column_end, double* sums) noexcept {
  for (; column < column_end; column += kExactColumns) {
    const int64_t rest = column_end - column;
    SumTerms<I>(terms, RowGrid<I, A>(grid), begin, end, column, rest < kExactColumns ? rest : kExactColumns,
                sums + column, terms.width());
  }
}

// Sums one or two contributions that lie on the grid. Their sum, rounded once, is that of the type itself.
template <Isa I, class Terms, class A>
[[gnu::always_inline]] inline void SumTwo(const Terms& terms, const RowGrid<I, A>& grid, int64_t begin, int64_t end,
                                          int64_t column, int64_t columns, A* out) noexcept {
  using T = typename Terms::T;
  const auto sum = [&](const auto& term) __attribute__((always_inline)) {
    int64_t c = 0;
    if constexpr (!kWidensInMemory<I, T>) {
      constexpr int64_t kLanes = Vector<I, A>::kLanes;
      for (; c + kLanes <= columns; c += kLanes) {
        const auto total =
            term([&](int64_t k) __attribute__((always_inline)) { return LoadVector<I>(terms.row(k) + column + c); });
        __builtin_memcpy(out + c, &total, sizeof(total));
      }
    }
    for (; c < columns; ++c) {
      out[c] = term([&](int64_t k) __attribute__((always_inline)) { return Load<I>(terms.row(k)[column + c]); });
    }
  };
  for (int64_t k = begin; k < end; ++k) grid.Prefetch(terms, k, column, columns);
  const A factor = Terms::kScaled ? terms.factor(begin) : A{1};
  if (end - begin == 1) {
    sum([&](const auto& load)
            __attribute__((always_inline)) { return (Terms::kScaled ? load(begin) * factor : load(begin)) + A{0}; });
  } else {
    const A factor2 = Terms::kScaled ? terms.factor(begin + 1) : A{1};
    sum([&](const auto& load) __attribute__((always_inline)) {
      return (Terms::kScaled ? load(begin) * factor + load(begin + 1) * factor2 : load(begin) + load(begin + 1)) + A{0};
    });
  }
}

// Sums contributions of at most kExactColumns columns whose magnitudes are not known. Returns whether the sums are
// good.
template <Isa I, class Terms>
[[gnu::always_inline]] inline bool SumUnknownTerms(const Terms& terms, int64_t begin, int64_t end,
                                                   double* sums) noexcept {
  typename UnknownGrid<I>::Search search;
  SumTerms<I>(terms, UnknownGrid<I>{search}, begin, end, 0, terms.width(), sums, kExactColumns);
  bool all_finite;
  const Magnitudes<float> found = search.Get(&all_finite);
  return all_finite && RowGrid<I, float>(found, end - begin).all_on_grid;
}

// Rounds vectors of finished sums of float that are divided first. Returns the number of columns done.
template <Isa I>
[[gnu::always_inline]] inline int64_t RoundQuotients(const double* sums, double divisor, float* out,
                                                     int64_t columns) noexcept {
  using L = Lanes<I, float>;
  using V = typename L::Doubles;
  const Division<I> divide(divisor);
  int64_t c = 0;
  for (; c + L::kCount <= columns; c += L::kCount) {
    V parts[L::kParts];
    for (int part = 0; part < L::kParts; ++part) {
      V x;
      __builtin_memcpy(&x, sums + c + part * L::kDoubles, sizeof(x));
      x = divide(x);
      const V magnitude = x < 0 ? -x : x;  // WithoutSubnormals
      const V normal = magnitude < kSmallestFloat ? (x < 0 ? V{} - kSmallestFloat : V{} + kSmallestFloat) : x;
      parts[part] = magnitude < kRoundedToSmallestFloat ? V{} : normal;
    }
    const typename L::Values rounded = ToFloat<I>(parts);
    __builtin_memcpy(out + c, &rounded, sizeof(rounded));
  }
  return c;
}

// Rounds finished sums. Divisor 1 costs nothing.
template <Isa I, class A>
[[gnu::always_inline]] inline void RoundRow(const SumGrid<A>& grid, const double* sums, int64_t stride, double divisor,
                                            A* out, int64_t columns) noexcept {
  if constexpr (std::is_same_v<A, float>) {
    if (divisor == 1.0) {
      for (int64_t c = 0; c < columns; ++c) out[c] = RoundSum(grid, sums[c]);
    } else {
      for (int64_t c = RoundQuotients<I>(sums, divisor, out, columns); c < columns; ++c) {
        out[c] = RoundSum(grid, sums[c], divisor);
      }
    }
  } else {
    for (int64_t c = 0; c < columns; ++c) out[c] = RoundSums(grid, sums[c], sums[stride + c], divisor);
  }
}

// Sums contributions [begin, end), one or more, and rounds. Sums of float that need only one block never leave the
// registers before they are rounded.
template <Isa I, class Terms, class A>
[[gnu::always_inline]] inline void SumAndRound(const Terms& terms, const RowGrid<I, A>& grid, int64_t begin,
                                               int64_t end, int64_t column, int64_t columns, double divisor,
                                               A* out) noexcept {
  if (divisor == 1.0 && end - begin <= 2 && grid.all_on_grid) {
    SumTwo<I>(terms, grid, begin, end, column, columns, out);
    return;
  }
  if constexpr (std::is_same_v<A, float>) {
    if (divisor == 1.0 && end - begin <= BlockLength<I, Terms>(columns)) {
      AddParts<I, kSumVectors<I, A>>(terms, grid, begin, end, column, columns, RoundedRow{out}, 0);
      return;
    }
  }
  double sums[SumGrid<A>::kSums * kExactColumns];
  SumTerms<I>(terms, grid, begin, end, column, columns, sums, kExactColumns);
  RoundRow<I>(grid.grid, sums, kExactColumns, divisor, out, columns);
}

}  // namespace raggrad::sparse_segment
