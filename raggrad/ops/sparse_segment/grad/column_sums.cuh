// Running sums of some neighbouring columns of a row: rounded after each addition, or exact.
//
// Both have the same members. A Part is what memory holds of a partial sum; a column has kParts of them. A Grid is what
// a sum must know about its row beforehand.
#pragma once

#include "raggrad/core/sum_grid.h"
#include "raggrad/ops/sparse_segment/grad/row_sink.cuh"

namespace raggrad::sparse_segment::on_cuda {

// For kSequential and kFast.
template <class T, int kColumns>
struct RoundedSums {
  using Part = SumType<T>;
  static constexpr int kParts = 1;
  struct Grid {};

  Part of[kParts][kColumns] = {};

  // Adds x * factor, with a rounded product.
  template <bool kOnGrid = false>
  __device__ void Add(const Columns<T, kColumns>& x, SumType<T> factor, const Grid&) {
    for (int c = 0; c < kColumns; ++c) {
      of[0][c] = cuda::Add(of[0][c], cuda::Multiply(cuda::Widen(x.values[c]), factor));
    }
  }
  __device__ void AddParts(const Part (&other)[kParts][kColumns]) {
    for (int c = 0; c < kColumns; ++c) of[0][c] = cuda::Add(of[0][c], other[0][c]);
  }
  __device__ SumType<T> Round(int column, const Grid&) const { return of[0][column]; }
};

// For kReproducible, with the arithmetic of core/sum_grid.h. Additions are exact, so they need not flush.
template <class T, int kColumns>
struct ExactSums {
  using Part = double;
  using Grid = SumGrid<SumType<T>>;
  static constexpr int kParts = Grid::kSums;

  Part of[kParts][kColumns] = {};

  // kOnGrid: the contribution lies on the first grid, so that rounding would change nothing.
  template <bool kOnGrid = false>
  __device__ void Add(const Columns<T, kColumns>& x, SumType<T> factor, const Grid& grid) {
    for (int c = 0; c < kColumns; ++c) {
      const SumType<T> term = cuda::Multiply(cuda::Widen(x.values[c]), factor);
      if constexpr (kOnGrid) {
        static_assert(kParts == 1);
        of[0][c] += cuda::ToDouble(term);
      } else if constexpr (kParts == 1) {
        of[0][c] += (cuda::ToDouble(term) + grid.magic) - grid.magic;
      } else {
        const double scaled = term * grid.scale;
        const double rounded = (scaled + grid.magic) - grid.magic;
        of[0][c] += rounded;
        of[1][c] += ((scaled - rounded) + grid.magic2) - grid.magic2;
      }
    }
  }
  // The same for a contribution of float that lies on the grid. Calls see(term) with each of its terms.
  template <class See>
  __device__ void AddOnGrid(const Columns<T, kColumns>& x, SumType<T> factor, const See& see) {
    static_assert(kParts == 1);
    for (int c = 0; c < kColumns; ++c) {
      const SumType<T> term = cuda::Multiply(cuda::Widen(x.values[c]), factor);
      see(term);
      of[0][c] += cuda::ToDouble(term);
    }
  }
  __device__ void AddParts(const Part (&other)[kParts][kColumns]) {
    for (int p = 0; p < kParts; ++p) {
      for (int c = 0; c < kColumns; ++c) of[p][c] += other[p][c];
    }
  }
  __device__ SumType<T> Round(int column, const Grid& grid, double divisor = 1) const {
    if constexpr (kParts == 2) {
      return RoundSums(grid, of[0][column], of[1][column], divisor);
    } else if (divisor == 1) {
      return cuda::ToFloatUnflushed(of[0][column]) + 0.0F;  // as RoundSum: the addition flushes
    } else {
      return RoundSum(grid, of[0][column], divisor);
    }
  }
};

}  // namespace raggrad::sparse_segment::on_cuda
