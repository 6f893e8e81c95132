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
//   largest(k)      the largest finite magnitude in row(k)
//   lies_ready      whether largest(k) is looked up, not searched for in the row
#pragma once

#include <cstdint>

#include "raggrad/core/isa.h"
#include "raggrad/core/sum_grid.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/cpu/convert.h"
#include "raggrad/ops/sparse_segment/row_ops.h"

namespace raggrad::sparse_segment {

inline constexpr int64_t kExactColumns = 256;  // columns whose sums lie on the stack while a row is summed
inline constexpr int64_t kExactAhead = 12;     // contributions between a prefetch and its use
inline constexpr int64_t kExactBlockBytes =
    1 << 14;  // of contributions that stay in L1 while all their columns are summed

template <Isa I>
inline constexpr int64_t kVectorBytes = I == Isa::kX86V4   ? 64
                                        : I == Isa::kX86V3 ? 32
                                                           : 16;

// As many A as there are doubles in a vector register of the level.
template <Isa I, class A>
struct Lanes {
  static constexpr int64_t kCount = kVectorBytes<I> / static_cast<int64_t>(sizeof(double));
  typedef A Type __attribute__((vector_size(kCount * sizeof(A))));  // NOLINT: an alias cannot have the attribute
};

// The largest finite magnitude in a row, 0 if there is none. Magnitudes have the order of their bits.
template <Isa I, class T>
[[gnu::always_inline]] inline SumType<T> LargestFinite(const T* row, int64_t columns) noexcept {
  using Bits = std::conditional_t<sizeof(T) == 2, int16_t, std::conditional_t<sizeof(T) == 4, int32_t, int64_t>>;
  constexpr Bits kMagnitude = static_cast<Bits>(~(Bits{1} << (8 * sizeof(T) - 1)));
  constexpr Bits kInfinity = std::is_same_v<T, Half>       ? Bits{0x7c00}
                             : std::is_same_v<T, BFloat16> ? Bits{0x7f80}
                             : sizeof(T) == 4              ? static_cast<Bits>(0x7f800000)
                                                           : static_cast<Bits>(0x7ff0000000000000);
  constexpr int64_t kLanes = kVectorBytes<I> / static_cast<int64_t>(sizeof(T));
  typedef Bits Vector __attribute__((vector_size(kVectorBytes<I>)));  // NOLINT: an alias cannot have the attribute
  Bits largest = 0;
  int64_t c = 0;
  if (columns >= kLanes) {
    Vector tops = {};
    for (; c + kLanes <= columns; c += kLanes) {
      Vector x;
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
  const T value = __builtin_bit_cast(T, largest);
  if constexpr (kIsShortFloat<T>) {
    return cpu::Convert<I>::Widen(value);
  } else {
    return value;
  }
}

template <Isa I, class A>
[[gnu::always_inline]] inline bool IsFinite(A x) noexcept {
  return x - x == 0;
}

template <Isa I, class A>
[[gnu::always_inline]] inline A Magnitude(A x) noexcept {
  return x < 0 ? -x : x;
}

template <Isa I, class T>
[[gnu::always_inline]] inline SumType<T> Wide(T value) noexcept {
  if constexpr (kIsShortFloat<T>) {
    return cpu::Convert<I>::Widen(value);
  } else {
    return value;
  }
}

// The largest finite product of a row and a factor that makes its largest value infinite or NaN.
template <Isa I, class T>
SumType<T> LargestFiniteProduct(const T* row, int64_t columns, SumType<T> factor) noexcept {
  SumType<T> largest = 0;
  for (int64_t c = 0; c < columns; ++c) {
    const SumType<T> x = Magnitude<I>(Wide<I>(row[c]) * factor);
    if (IsFinite<I>(x) && x > largest) largest = x;
  }
  return largest;
}

// The largest finite magnitude of contributions [begin, end) in any column. Rounding keeps the order, so the largest
// product is that of the largest value.
template <Isa I, class Terms>
[[gnu::always_inline]] inline SumType<typename Terms::T> LargestTerm(const Terms& terms, int64_t begin,
                                                                     int64_t end) noexcept {
  using A = SumType<typename Terms::T>;
  A largest = 0;
  for (int64_t k = begin; k < end; ++k) {
    if (!terms.lies_ready() && k + kExactAhead < terms.count()) {
      PrefetchRow<I>(terms.row(k + kExactAhead), terms.width());
    }
    A x = terms.largest(k);
    if constexpr (Terms::kScaled) {
      x *= Magnitude<I>(terms.factor(k));
      if (!IsFinite<I>(x)) x = LargestFiniteProduct<I>(terms.row(k), terms.width(), terms.factor(k));
    }
    largest = x > largest ? x : largest;
  }
  return largest;
}

// Adds contributions to kVectors vectors of sums in registers. The second sums of double lie at sums + stride.
template <Isa I, bool kFirst, int kVectors, class Terms, class Grid>
[[gnu::always_inline]] inline void AddVectors(const Terms& terms, const Grid& grid, int64_t begin, int64_t end,
                                              int64_t column, double* sums, int64_t stride) noexcept {
  using T = typename Terms::T;
  using A = SumType<T>;
  using V = typename Lanes<I, double>::Type;
  using Values = typename Lanes<I, A>::Type;
  constexpr int64_t kLanes = Lanes<I, double>::kCount;
  V totals[Grid::kSums][kVectors] = {};
  if constexpr (!kFirst) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      for (int g = 0; g < Grid::kSums; ++g) __builtin_memcpy(&totals[g][v], sums + g * stride + v * kLanes, sizeof(V));
    }
  }
  for (int64_t k = begin; k < end; ++k) {
    if (terms.lies_ready() && k + kExactAhead < terms.count()) {
      PrefetchRow<I>(terms.row(k + kExactAhead) + column, kVectors * kLanes);
    }
    const T* const row = terms.row(k) + column;
    A wide[kIsShortFloat<T> ? kVectors * kLanes : 1];
    const A* values;
    if constexpr (kIsShortFloat<T>) {
      cpu::Convert<I>::WidenRow(row, wide, kVectors * kLanes);
      values = wide;
    } else {
      values = row;
    }
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      Values x;
      __builtin_memcpy(&x, values + v * kLanes, sizeof(x));
      if constexpr (Terms::kScaled) x *= terms.factor(k);
      if constexpr (std::is_same_v<A, float>) {
        totals[0][v] += (__builtin_convertvector(x, V) + grid.magic) - grid.magic;
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
    for (int g = 0; g < Grid::kSums; ++g) __builtin_memcpy(sums + g * stride + v * kLanes, &totals[g][v], sizeof(V));
  }
}

// The same for columns that do not fill a vector.
template <Isa I, bool kFirst, class Terms, class Grid>
[[gnu::always_inline]] inline void AddFew(const Terms& terms, const Grid& grid, int64_t begin, int64_t end,
                                          int64_t column, int64_t columns, double* sums, int64_t stride) noexcept {
  using T = typename Terms::T;
  double totals[Grid::kSums][Lanes<I, double>::kCount] = {};
  if constexpr (!kFirst) {
    for (int g = 0; g < Grid::kSums; ++g) {
      for (int64_t c = 0; c < columns; ++c) totals[g][c] = sums[g * stride + c];
    }
  }
  for (int64_t k = begin; k < end; ++k) {
    if (terms.lies_ready() && k + kExactAhead < terms.count()) {
      PrefetchRow<I>(terms.row(k + kExactAhead) + column, columns);
    }
    const T* const row = terms.row(k) + column;
    for (int64_t c = 0; c < columns; ++c) {
      SumType<T> x = Wide<I>(row[c]);
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
  for (int g = 0; g < Grid::kSums; ++g) {
    for (int64_t c = 0; c < columns; ++c) sums[g * stride + c] = totals[g][c];
  }
}

// Takes kVectors vectors of columns at a time, then half as many, ..., then the rest.
template <Isa I, bool kFirst, int kVectors, class Terms, class Grid>
[[gnu::always_inline]] inline void AddParts(const Terms& terms, const Grid& grid, int64_t begin, int64_t end,
                                            int64_t column, int64_t columns, double* sums, int64_t stride) noexcept {
  constexpr int64_t kColumns = kVectors * Lanes<I, double>::kCount;
  for (; columns >= kColumns; columns -= kColumns, column += kColumns, sums += kColumns) {
    AddVectors<I, kFirst, kVectors>(terms, grid, begin, end, column, sums, stride);
  }
  if (columns == 0) return;
  if constexpr (kVectors > 1) {
    AddParts<I, kFirst, kVectors / 2>(terms, grid, begin, end, column, columns, sums, stride);
  } else {
    AddFew<I, kFirst>(terms, grid, begin, end, column, columns, sums, stride);
  }
}

// Sets sums[c] to the sums of contributions [begin, end), one or more. Long rows are taken in blocks that stay in the
// cache from strip to strip of their columns.
template <Isa I, class Terms, class Grid>
void SumTerms(const Terms& terms, const Grid& grid, int64_t begin, int64_t end, int64_t column, int64_t columns,
              double* sums, int64_t stride) noexcept {
  constexpr int kVectors = (I == Isa::kX86V4 || I == Isa::kArmV8 ? 16 : 8) / Grid::kSums;  // sums in registers
  const int64_t row_bytes = columns * static_cast<int64_t>(sizeof(typename Terms::T));
  const bool one_strip = columns <= kVectors * Lanes<I, double>::kCount;
  const int64_t block = one_strip ? end - begin : 8 + kExactBlockBytes / row_bytes;
  int64_t block_end = begin + block < end ? begin + block : end;
  AddParts<I, true, kVectors>(terms, grid, begin, block_end, column, columns, sums, stride);
  while (block_end < end) {
    begin = block_end;
    block_end = begin + block < end ? begin + block : end;
    AddParts<I, false, kVectors>(terms, grid, begin, block_end, column, columns, sums, stride);
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

}  // namespace raggrad::sparse_segment
