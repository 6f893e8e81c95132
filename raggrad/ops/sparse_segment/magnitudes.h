// Magnitudes of rows, which Accumulation::kReproducible has to know before it sums (core/sum_grid.h). Compiled per
// instruction-set level, so everything here is a template of the level or always inlined.
#pragma once

#include <cstdint>
#include <type_traits>

#include "raggrad/core/isa.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/ops/sparse_segment/row_ops.h"

namespace raggrad::sparse_segment {

// Of some numbers of type A.
template <class A>
struct Magnitudes {
  A largest = 0;                                 // of those that are finite
  A smallest = static_cast<A>(__builtin_inf());  // or less, of those that are not 0

  [[gnu::always_inline]] void Include(const Magnitudes& more) noexcept {
    largest = more.largest > largest ? more.largest : largest;
    smallest = more.smallest > smallest ? smallest : more.smallest;
  }
};

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

// Of the products of a row and a factor, if the magnitudes of the row are known. Rounding keeps the order, so the
// largest product is that of the largest value, unless it overflows.
template <Isa I, class T>
[[gnu::always_inline]] inline Magnitudes<SumType<T>> ProductMagnitudes(const T* row, int64_t columns,
                                                                       const Magnitudes<SumType<T>>& of_row,
                                                                       SumType<T> factor) noexcept {
  const SumType<T> magnitude = Magnitude<I>(factor);
  const SumType<T> product = of_row.largest * magnitude;
  return {IsFinite<I>(product) ? product : SearchLargestProduct<I>(row, columns, factor), of_row.smallest * magnitude};
}

// Searches numbers for their magnitudes, which have the order of their bits. Takes kBytes of them at a time.
template <Isa I, class T, int64_t kBytes = Vector<I, float>::kBytes>
class MagnitudeSearch {
 public:
  [[gnu::always_inline]] void Add(T value) noexcept {
    const auto x = static_cast<Bits>(__builtin_bit_cast(Bits, value) & kMagnitude);
    Include(x, static_cast<Bits>(static_cast<Unsigned>(x) + kZerosLast));
  }
  template <class V>
  requires(sizeof(V) == kBytes) [[gnu::always_inline]] void Add(const V& values) noexcept {
    const BitVector x = reinterpret_cast<BitVector>(values) & kMagnitude;
    const auto moved = reinterpret_cast<BitVector>(reinterpret_cast<UnsignedVector>(x) + kZerosLast);
    largest_lanes_ = x > largest_lanes_ ? x : largest_lanes_;
    smallest_lanes_ = moved < smallest_lanes_ ? moved : smallest_lanes_;
  }
  [[gnu::always_inline]] void Add(const T* row, int64_t columns) noexcept {
    int64_t c = 0;
    for (; c + kLanes <= columns; c += kLanes) {
      BitVector values;
      __builtin_memcpy(&values, row + c, sizeof(values));
      Add(values);
    }
    for (; c < columns; ++c) Add(row[c]);
  }

  // To be called once, when all numbers were added. `all_finite`: else another search has to find the largest one.
  [[gnu::always_inline]] Magnitudes<SumType<T>> Get(bool* all_finite) noexcept {
    Include(LargestLane(largest_lanes_), static_cast<Bits>(~LargestLane(~smallest_lanes_)));
    *all_finite = largest_ < kInfinity;
    Magnitudes<SumType<T>> found;
    found.largest = Load<I>(__builtin_bit_cast(T, largest_));
    if (smallest_ != kMagnitude) {
      const auto bits = static_cast<Bits>(static_cast<Unsigned>(smallest_) - kZerosLast);
      found.smallest = Load<I>(__builtin_bit_cast(T, bits));
    }
    return found;
  }

 private:
  using Bits = std::conditional_t<sizeof(T) == 2, int16_t, std::conditional_t<sizeof(T) == 4, int32_t, int64_t>>;
  using Unsigned = std::make_unsigned_t<Bits>;
  typedef Bits BitVector __attribute__((vector_size(kBytes)));           // NOLINT: an alias cannot have the attribute
  typedef Unsigned UnsignedVector __attribute__((vector_size(kBytes)));  // NOLINT
  static constexpr int64_t kLanes = kBytes / static_cast<int64_t>(sizeof(T));
  static constexpr Bits kMagnitude = static_cast<Bits>(~(Bits{1} << (8 * sizeof(T) - 1)));
  static constexpr Bits kInfinity = std::is_same_v<T, Half>       ? Bits{0x7c00}
                                    : std::is_same_v<T, BFloat16> ? Bits{0x7f80}
                                    : sizeof(T) == 4              ? static_cast<Bits>(0x7f800000)
                                                                  : static_cast<Bits>(0x7ff0000000000000);
  // Added to magnitudes it makes 0 the largest of all, and keeps the order of the others: they wrap around to the
  // negative numbers.
  static constexpr auto kZerosLast = static_cast<Unsigned>(kMagnitude);

  [[gnu::always_inline]] void Include(Bits x, Bits moved) noexcept {
    largest_ = x > largest_ ? x : largest_;
    smallest_ = moved < smallest_ ? moved : smallest_;
  }
  [[gnu::always_inline]] static Bits LargestLane(BitVector lanes) noexcept {
#if defined(__aarch64__)
    if constexpr (sizeof(Bits) == 2) return vmaxvq_s16(reinterpret_cast<int16x8_t>(lanes));
    if constexpr (sizeof(Bits) == 4) return vmaxvq_s32(reinterpret_cast<int32x4_t>(lanes));
#endif
    Bits largest = lanes[0];
    for (int64_t lane = 1; lane < kLanes; ++lane) largest = lanes[lane] > largest ? lanes[lane] : largest;
    return largest;
  }

  BitVector largest_lanes_ = {};
  BitVector smallest_lanes_ = BitVector{} + kMagnitude;
  Bits largest_ = 0;
  Bits smallest_ = kMagnitude;
};

// The magnitudes of a row.
template <Isa I, class T>
[[gnu::always_inline]] inline Magnitudes<SumType<T>> MagnitudesOf(const T* row, int64_t columns) noexcept {
  MagnitudeSearch<I, T> search;
  search.Add(row, columns);
  bool all_finite;
  Magnitudes<SumType<T>> found = search.Get(&all_finite);
  if (!all_finite) found.largest = SearchLargestProduct<I>(row, columns, SumType<T>{1});
  return found;
}

}  // namespace raggrad::sparse_segment
