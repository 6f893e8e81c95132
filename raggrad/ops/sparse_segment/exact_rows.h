// Sums of Accumulation::kReproducible over the columns of rows, for gradients and forwards (core/sum_grid.h has the
// arithmetic). Compiled per instruction-set level, so everything here is a template of the level or always inlined.
//
// Terms are the contributions of a call, numbered as its rows need them:
//   T               type of the values
//   kScaled         whether they have factors
//   width           columns
//   count           of all contributions; those behind the current ones are prefetched
//   row(k)          first column of contribution k
//   factor(k)       its factor
//   largest(k)      its largest finite magnitude in any column, with the factor
//   lies_ready      whether largest(k) is looked up, not searched for in the row
//   PrefetchDescription(k)  prefetches what factor(k) and largest(k) look up
#pragma once

#include <cstdint>
#include <type_traits>

#include "raggrad/core/isa.h"
#include "raggrad/core/sum_grid.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/ops/sparse_segment/exact_lanes.h"
#include "raggrad/ops/sparse_segment/row_ops.h"

namespace raggrad::sparse_segment {

inline constexpr int64_t kExactColumns = 256;         // columns whose sums lie on the stack while a row is summed
inline constexpr int64_t kExactAhead = 12;            // contributions between a prefetch and its use
inline constexpr int64_t kExactBlockBytes = 1 << 14;  // of contributions that stay in L1 from strip to strip

// The largest finite magnitude in a row, 0 if there is none. Magnitudes have the order of their bits.
template <Isa I, class T>
[[gnu::always_inline]] inline SumType<T> LargestFinite(const T* row, int64_t columns) noexcept {
  using Bits = std::conditional_t<sizeof(T) == 2, int16_t, std::conditional_t<sizeof(T) == 4, int32_t, int64_t>>;
  constexpr Bits kMagnitude = static_cast<Bits>(~(Bits{1} << (8 * sizeof(T) - 1)));
  constexpr Bits kInfinity = std::is_same_v<T, Half>       ? Bits{0x7c00}
                             : std::is_same_v<T, BFloat16> ? Bits{0x7f80}
                             : sizeof(T) == 4              ? static_cast<Bits>(0x7f800000)
                                                           : static_cast<Bits>(0x7ff0000000000000);
  constexpr int64_t kLanes = Vector<I, Bits>::kLanes;
  using BitVector = typename Vector<I, Bits>::Type;
  Bits largest = 0;
  int64_t c = 0;
  if (columns >= kLanes) {
    BitVector tops = {};
    for (; c + kLanes <= columns; c += kLanes) {
      BitVector x;
      __builtin_memcpy(&x, row + c, sizeof(x));
      x &= kMagnitude;
      x &= x < kInfinity;
      tops = x > tops ? x : tops;
    }
    for (int64_t lane = 0; lane < kLanes; ++lane) largest = tops[lane] > largest ? tops[lane] : largest;
  }
  for (; c < columns; ++c) {
    Bits x;
    __builtin_memcpy(&x, row + c, sizeof(x));
    x = static_cast<Bits>(x & kMagnitude);
    if (x < kInfinity && x > largest) largest = x;
  }
  return Load<I>(__builtin_bit_cast(T, largest));
}

template <Isa I, class A>
[[gnu::always_inline]] inline bool IsFinite(A x) noexcept {
  return x - x == 0;
}

template <Isa I, class A>
[[gnu::always_inline]] inline A Magnitude(A x) noexcept {
  return x < 0 ? -x : x;
}

// The largest finite product of a row and a factor, value by value.
template <Isa I, class T>
SumType<T> SearchLargestProduct(const T* row, int64_t columns, SumType<T> factor) noexcept {
  SumType<T> largest = 0;
  for (int64_t c = 0; c < columns; ++c) {
    const SumType<T> x = Magnitude<I>(Load<I>(row[c]) * factor);
    if (IsFinite<I>(x) && x > largest) largest = x;
  }
  return largest;
}

// The same for a row whose largest finite magnitude is known. Rounding keeps the order, so the largest product is that
// of the largest value, unless it overflows.
template <Isa I, class T>
[[gnu::always_inline]] inline SumType<T> LargestProduct(const T* row, int64_t columns, SumType<T> largest,
                                                        SumType<T> factor) noexcept {
  const SumType<T> product = largest * Magnitude<I>(factor);
  return IsFinite<I>(product) ? product : SearchLargestProduct<I>(row, columns, factor);
}

// The largest finite magnitude of contributions [begin, end) in any column.
template <Isa I, class Terms>
[[gnu::always_inline]] inline SumType<typename Terms::T> LargestTerm(const Terms& terms, int64_t begin,
                                                                     int64_t end) noexcept {
  using A = SumType<typename Terms::T>;
  A largest = 0;
  for (int64_t k = begin; k < end; ++k) {
    if (terms.lies_ready()) {
      if (k + 2 * kExactAhead < terms.count()) terms.PrefetchDescription(k + 2 * kExactAhead);
    } else if (k + kExactAhead < terms.count()) {
      PrefetchRow<I>(terms.row(k + kExactAhead), terms.width());
    }
    const A x = terms.largest(k);
    largest = x > largest ? x : largest;
  }
  return largest;
}

// Where the sums of some columns go: into memory, on top of those that are there, or, for float, rounded to a row.
template <class Grid>
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
[[gnu::always_inline]] inline void AddVectors(const Terms& terms, const Grid& grid, int64_t begin, int64_t end,
                                              int64_t column, const Target& target, int64_t at) noexcept {
  using T = typename Terms::T;
  using A = SumType<T>;
  using V = typename Lanes<I, double>::Type;
  using Values = typename Lanes<I, A>::Type;
  constexpr int64_t kLanes = Lanes<I, double>::kCount;
  V totals[Grid::kSums][kVectors] = {};
  if constexpr (!Target::kRounds) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      for (int g = 0; g < Grid::kSums; ++g) {
        __builtin_memcpy(&totals[g][v], target.sums + g * target.stride + at + v * kLanes, sizeof(V));
      }
    }
  }
  for (int64_t k = begin; k < end; ++k) {
    if (terms.lies_ready() && k + kExactAhead < terms.count()) {
      PrefetchRow<I>(terms.row(k + kExactAhead) + column, kVectors * kLanes);
    }
    const T* const row = terms.row(k) + column;
    [[maybe_unused]] const A factor = Terms::kScaled ? terms.factor(k) : A{1};
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      Values x = LoadLanes<I>(row + v * kLanes);
      if constexpr (Terms::kScaled) x *= factor;
      if constexpr (std::is_same_v<A, float>) {
        totals[0][v] += (ToDouble<I>(x) + grid.magic) - grid.magic;
      } else {
        x *= grid.scale;
        const V rounded = (x + grid.magic) - grid.magic;
        totals[0][v] += rounded;
        totals[1][v] += ((x - rounded) + grid.magic2) - grid.magic2;
      }
    }
  }
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {  // one by one: g++ 12 would keep a copied array in memory
    if constexpr (Target::kRounds) {
      const typename Lanes<I, float>::Type rounded = ToFloat<I>(totals[0][v]) + 0.0F;  // RoundSum
      __builtin_memcpy(target.row + at + v * kLanes, &rounded, sizeof(rounded));
    } else {
      for (int g = 0; g < Grid::kSums; ++g) {
        __builtin_memcpy(target.sums + g * target.stride + at + v * kLanes, &totals[g][v], sizeof(V));
      }
    }
  }
}

// The same for columns that do not fill a vector.
template <Isa I, class Terms, class Grid, class Target>
[[gnu::always_inline]] inline void AddFew(const Terms& terms, const Grid& grid, int64_t begin, int64_t end,
                                          int64_t column, int64_t columns, const Target& target, int64_t at) noexcept {
  using T = typename Terms::T;
  double totals[Grid::kSums][Lanes<I, double>::kCount] = {};
  if constexpr (!Target::kRounds) {
    for (int g = 0; g < Grid::kSums; ++g) {
      for (int64_t c = 0; c < columns; ++c) totals[g][c] = target.sums[g * target.stride + at + c];
    }
  }
  for (int64_t k = begin; k < end; ++k) {
    if (terms.lies_ready() && k + kExactAhead < terms.count()) {
      PrefetchRow<I>(terms.row(k + kExactAhead) + column, columns);
    }
    const T* const row = terms.row(k) + column;
    for (int64_t c = 0; c < columns; ++c) {
      SumType<T> x = Load<I>(row[c]);
      if constexpr (Terms::kScaled) x *= terms.factor(k);
      if constexpr (Grid::kSums == 1) {
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
      for (int g = 0; g < Grid::kSums; ++g) target.sums[g * target.stride + at + c] = totals[g][c];
    }
  }
}

// Takes kVectors vectors of columns at a time, then half as many, ..., then the rest.
template <Isa I, int kVectors, class Terms, class Grid, class Target>
[[gnu::always_inline]] inline void AddParts(const Terms& terms, const Grid& grid, int64_t begin, int64_t end,
                                            int64_t column, int64_t columns, const Target& target,
                                            int64_t at) noexcept {
  constexpr int64_t kColumns = kVectors * Lanes<I, double>::kCount;
  for (; columns >= kColumns; columns -= kColumns, column += kColumns, at += kColumns) {
    AddVectors<I, kVectors>(terms, grid, begin, end, column, target, at);
  }
  if (columns == 0) return;
  if constexpr (kVectors > 1) {
    AddParts<I, kVectors / 2>(terms, grid, begin, end, column, columns, target, at);
  } else {
    AddFew<I>(terms, grid, begin, end, column, columns, target, at);
  }
}

template <Isa I, class Grid>
inline constexpr int kSumVectors = (I == Isa::kX86V4 || I == Isa::kArmV8 ? 16 : 8) / Grid::kSums;  // in registers

// How many contributions are taken at a time: as many as stay in the cache from strip to strip of their columns.
template <Isa I, class Terms, class Grid>
[[gnu::always_inline]] inline int64_t BlockLength(int64_t columns) noexcept {
  if (columns <= kSumVectors<I, Grid> * Lanes<I, double>::kCount) return INT64_MAX / 2;
  return 8 + kExactBlockBytes / (columns * static_cast<int64_t>(sizeof(typename Terms::T)));
}

// Sets sums[c] to the sums of contributions [begin, end), one or more.
template <Isa I, class Terms, class Grid>
void SumTerms(const Terms& terms, const Grid& grid, int64_t begin, int64_t end, int64_t column, int64_t columns,
              double* sums, int64_t stride) noexcept {
  for (int g = 0; g < Grid::kSums; ++g) {
    for (int64_t c = 0; c < columns; ++c) sums[g * stride + c] = 0;
  }
  const int64_t block = BlockLength<I, Terms, Grid>(columns);
  for (; begin < end; begin += block) {
    AddParts<I, kSumVectors<I, Grid>>(terms, grid, begin, begin + block < end ? begin + block : end, column, columns,
                                      SumsInMemory<Grid>{sums, stride}, 0);
  }
}

// The same for any number of columns, [column, column_end). The sums of column c lie at sums + c.
template <Isa I, class Terms, class Grid>
[[gnu::always_inline]] inline void SumColumns(const Terms& terms, const Grid& grid, int64_t begin, int64_t end,
                                              int64_t column, int64_t column_end, double* sums) noexcept {
  for (; column < column_end; column += kExactColumns) {
    const int64_t rest = column_end - column;
    SumTerms<I>(terms, grid, begin, end, column, rest < kExactColumns ? rest : kExactColumns, sums + column,
                terms.width());
  }
}

// Rounds finished sums. Divisor 1 costs nothing.
template <Isa I, class A>
[[gnu::always_inline]] inline void RoundRow(const SumGrid<A>& grid, const double* sums, int64_t stride, double divisor,
                                            A* out, int64_t columns) noexcept {
  if constexpr (std::is_same_v<A, float>) {
    if (divisor == 1.0) {
      for (int64_t c = 0; c < columns; ++c) out[c] = RoundSum(grid, sums[c]);
    } else {
      for (int64_t c = 0; c < columns; ++c) out[c] = RoundSum(grid, sums[c], divisor);
    }
  } else {
    for (int64_t c = 0; c < columns; ++c) out[c] = RoundSums(grid, sums[c], sums[stride + c], divisor);
  }
}

// Sums contributions [begin, end), one or more, and rounds. Sums of float that need only one block never leave the
// registers before they are rounded.
template <Isa I, class Terms, class A>
[[gnu::always_inline]] inline void SumAndRound(const Terms& terms, const SumGrid<A>& grid, int64_t begin, int64_t end,
                                               int64_t column, int64_t columns, double divisor, A* out) noexcept {
  if constexpr (std::is_same_v<A, float>) {
    if (divisor == 1.0 && end - begin <= BlockLength<I, Terms, SumGrid<A>>(columns)) {
      AddParts<I, kSumVectors<I, SumGrid<A>>>(terms, grid, begin, end, column, columns, RoundedRow{out}, 0);
      return;
    }
  }
  double sums[SumGrid<A>::kSums * kExactColumns];
  SumTerms<I>(terms, grid, begin, end, column, columns, sums, kExactColumns);
  RoundRow<I>(grid, sums, kExactColumns, divisor, out, columns);
}

}  // namespace raggrad::sparse_segment
