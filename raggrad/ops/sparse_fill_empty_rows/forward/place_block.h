// Copies entries and defaults to their places in the output, a block of them at a time. Internal to the CPU backend.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace raggrad::sparse_fill_empty_rows::on_cpu {

// A few hundred steps of a section. They are collected first; then one loop copies values and one copies indices. These
// loops depend on sizes only, and the steps are still in the nearest cache.
struct Block {
  static constexpr size_t kSize = 256;
  struct Move {
    int64_t entry;
    int64_t place;
  };
  struct Gap {
    int64_t row;
    int64_t place;
  };
  std::array<Move, kSize> moves;
  std::array<Gap, kSize> gaps;
  size_t num_moves = 0;
  size_t num_gaps = 0;
};

// Elements are copied by their size: bits stay what they are, and types of one size share the code.
template <size_t kBytes>
void PlaceValues(const Block& block, const void* values, const void* default_value, void* out) noexcept {
  const auto copy = [](const void* from, int64_t i, void* to, int64_t j) {
    std::copy_n(static_cast<const std::byte*>(from) + static_cast<size_t>(i) * kBytes, kBytes,
                static_cast<std::byte*>(to) + static_cast<size_t>(j) * kBytes);
  };
  for (size_t k = 0; k < block.num_moves; ++k) copy(values, block.moves[k].entry, out, block.moves[k].place);
  for (size_t k = 0; k < block.num_gaps; ++k) copy(default_value, 0, out, block.gaps[k].place);
}
using PlaceValuesFunction = void (*)(const Block&, const void*, const void*, void*) noexcept;

// kDims: the number of columns, or 0 if it is known only at run time.
template <int64_t kDims>
void PlaceIndices(const Block& block, const int64_t* indices, int64_t columns, int64_t* out) noexcept {
  const int64_t d = kDims == 0 ? columns : kDims;
  for (size_t k = 0; k < block.num_moves; ++k) {
    std::copy_n(indices + block.moves[k].entry * d, d, out + block.moves[k].place * d);
  }
  for (size_t k = 0; k < block.num_gaps; ++k) {
    int64_t* const to = out + block.gaps[k].place * d;
    to[0] = block.gaps[k].row;
    std::fill(to + 1, to + d, 0);
  }
}
using PlaceIndicesFunction = void (*)(const Block&, const int64_t*, int64_t, int64_t*) noexcept;

inline PlaceIndicesFunction ChoosePlaceIndices(int64_t d) noexcept {
  switch (d) {
    case 1:
      return PlaceIndices<1>;
    case 2:
      return PlaceIndices<2>;
    case 3:
      return PlaceIndices<3>;
    default:
      return PlaceIndices<0>;
  }
}

}  // namespace raggrad::sparse_fill_empty_rows::on_cpu
