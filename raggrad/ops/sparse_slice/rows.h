// Compares rows of the gradient's index matrices, one by one or 64 at a time. Internal to the CPU backend.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "raggrad/cpu/prefetch.h"
#include "raggrad/ops/sparse_slice/kernels.h"

namespace raggrad::sparse_slice::on_cpu {

inline constexpr int64_t kWord = 64;  // input rows that are compared with a box at a time
// Rows between a prefetch and its use: a few kB, since the processor's own prefetching ends where a page does.
inline constexpr int64_t kAhead = 256;
// Rows whose cache lines are asked for at a time; more would wait for each other.
inline constexpr int64_t kPrefetched = 16;
inline constexpr size_t kAnyDims = 0;  // the number of columns is known only at run time

// The smallest box around some rows: the least and the largest index in each column. If the number of columns is known
// only at run time, the first 8 count.
template <size_t kDims>
class Box {
 public:
  static constexpr size_t kMaxColumns = kDims == kAnyDims ? 8 : kDims;

  Box(const int64_t* row, size_t columns) noexcept {
    std::copy_n(row, columns, least_.begin());
    std::copy_n(row, columns, most_.begin());
  }
  void Include(const int64_t* row, size_t columns) noexcept {
    for (size_t c = 0; c < columns; ++c) {
      least_[c] = std::min(least_[c], row[c]);
      most_[c] = std::max(most_[c], row[c]);
    }
  }
  // Whether row - start is inside; the subtraction wraps.
  bool Holds(const int64_t* row, const int64_t* start, size_t columns) const noexcept {
    bool inside = true;
    for (size_t c = 0; c < columns; ++c) {
      const uint64_t least = static_cast<uint64_t>(least_[c]);
      const uint64_t offset = static_cast<uint64_t>(row[c]) - (static_cast<uint64_t>(start[c]) + least);
      inside &= offset <= static_cast<uint64_t>(most_[c]) - least;
    }
    return inside;
  }

 private:
  std::array<int64_t, kMaxColumns> least_{};
  std::array<int64_t, kMaxColumns> most_{};
};

// The rows of both index matrices. Pass it by value: a copy whose address nobody has can stay in registers while bytes
// are written.
template <size_t kDims>
class Rows {
 public:
  explicit Rows(const GradProblem& problem) noexcept
      : input_(problem.input_indices), output_(problem.output_indices), m_(problem.m) {
    if constexpr (kDims == kAnyDims) {
      start_ = problem.input_start;
    } else {
      std::copy_n(problem.input_start.begin(), kDims, start_.begin());
    }
  }

  int64_t m() const noexcept { return m_; }

  // input_indices[i] == output_indices[j] + input_start
  bool Match(int64_t i, int64_t j) const noexcept {
    for (size_t c = 0; c < dims(); ++c) {
      if (Input(i)[c] != Shifted(j, c)) return false;
    }
    return true;
  }

  // How many of the next `limit` rows match pair by pair, up to the first pair that does not.
  int64_t MatchingRun(int64_t i, int64_t j, int64_t limit) const noexcept {
    int64_t run = 0;
    while (run < limit && Match(i + run, j + run)) ++run;
    return run;
  }

  Box<kDims> OutputBox(int64_t begin, int64_t end) const noexcept {
    Box<kDims> box(Output(begin), boxed());
    for (int64_t j = begin + 1; j < end; ++j) {
      cpu::Prefetch(output_, (j + kAhead) * static_cast<int64_t>(dims()));
      box.Include(Output(j), boxed());
    }
    return box;
  }

  // Which of the input rows [i, i + kWord), moved by -input_start, are in the box: one bit per row.
  uint64_t Inside(const Box<kDims>& box, int64_t i) const noexcept {
    std::array<unsigned char, kWord> inside;  // bytes first, then bits: compilers vectorise the inner loop
    for (int64_t k = 0; k < kWord; k += kPrefetched) {
      PrefetchInput(i + k + kAhead);
      for (int64_t row = k; row < k + kPrefetched; ++row) {
        inside[static_cast<size_t>(row)] = box.Holds(Input(i + row), start_.data(), boxed()) ? 1 : 0;
      }
    }
    uint64_t bits = 0;
    for (size_t k = 0; k < kWord; k += 8) {
      uint64_t eight;
      std::memcpy(&eight, &inside[k], sizeof(eight));
      bits |= (eight * 0x0102040810204080U >> 56U) << k;  // the lowest bit of each byte, side by side
    }
    return bits;
  }

  // input_indices[a] == input_indices[b]
  bool SameInput(int64_t a, int64_t b) const noexcept { return std::equal(Input(a), Input(a) + dims(), Input(b)); }

  // How many rows of output_indices + input_start come before input_indices[i] in lexicographic order, if they are
  // sorted; any number in [0, m] if they are not.
  int64_t LowerBound(int64_t i) const noexcept {
    int64_t first = 0;
    for (int64_t count = m_; count > 0;) {
      const int64_t half = count / 2;
      if (ComesBefore(first + half, i)) {
        first += half + 1;
        count -= half + 1;
      } else {
        count = half;
      }
    }
    return first;
  }

 private:
  // Asks for input rows [first, first + kPrefetched): a cache line holds 8 indices.
  void PrefetchInput(int64_t first) const noexcept {
    const auto columns = static_cast<int64_t>(dims());
    for (int64_t at = 0; at < kPrefetched * columns; at += 8) cpu::Prefetch(input_, first * columns + at);
  }
  size_t dims() const noexcept { return kDims == kAnyDims ? start_.size() : kDims; }
  size_t boxed() const noexcept { return std::min(dims(), Box<kDims>::kMaxColumns); }
  const int64_t* Input(int64_t i) const noexcept { return input_ + i * static_cast<int64_t>(dims()); }
  const int64_t* Output(int64_t j) const noexcept { return output_ + j * static_cast<int64_t>(dims()); }
  int64_t Shifted(int64_t j, size_t c) const noexcept {  // wraps, as in TensorFlow
    return static_cast<int64_t>(static_cast<uint64_t>(Output(j)[c]) + static_cast<uint64_t>(start_[c]));
  }
  bool ComesBefore(int64_t j, int64_t i) const noexcept {
    for (size_t c = 0; c < dims(); ++c) {
      if (Shifted(j, c) != Input(i)[c]) return Shifted(j, c) < Input(i)[c];
    }
    return false;
  }

  const int64_t* input_;
  const int64_t* output_;
  std::conditional_t<kDims == kAnyDims, std::span<const int64_t>, std::array<int64_t, kDims>> start_;
  int64_t m_;
};

}  // namespace raggrad::sparse_slice::on_cpu
