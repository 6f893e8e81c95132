// The sum of Accumulation::kReproducible (core/sum_grid.h): the same bits for every order of the values. Internal to
// the CPU backend.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "raggrad/core/scratch.h"
#include "raggrad/core/sum_grid.h"
#include "raggrad/core/sum_type.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/ops/sparse_fill_empty_rows/grad/default_sum.h"
#include "raggrad/ops/sparse_fill_empty_rows/grad/parts.h"

namespace raggrad::sparse_fill_empty_rows {

inline constexpr int kLanes = 8;  // sums that run side by side; lane l has values l, l + 8, ...

// The largest finite magnitude of each part in values [begin, end). `begin` is a multiple of kLanes. Compares bits as
// integers, which have the order of magnitudes: with floats g++ branches on the sign of every value.
template <class P, int kParts>
void FindLargest(const P* values, int64_t begin, int64_t end, SumType<P> (&largest)[kParts]) noexcept {
  using A = SumType<P>;
  using Bits = std::conditional_t<sizeof(A) == 4, int32_t, int64_t>;
  constexpr auto kNotFinite = std::bit_cast<Bits>(std::numeric_limits<A>::infinity());  // and all above
  Bits lanes[kLanes] = {};
  const auto take = [&](int64_t i, int lane) {
    const Bits magnitude = std::bit_cast<Bits>(Widen(values[i])) & std::numeric_limits<Bits>::max();
    const Bits finite = magnitude < kNotFinite ? magnitude : Bits{0};
    lanes[lane] = finite > lanes[lane] ? finite : lanes[lane];
  };
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) take(i + lane, lane);
  }
  for (int lane = 0; i < end; ++i, ++lane) take(i, lane);
  for (int lane = 0; lane < kLanes; ++lane) {
    largest[lane % kParts] = std::max(largest[lane % kParts], std::bit_cast<A>(lanes[lane]));
  }
}

// Adds values [begin, end) to the sums of each part.
template <class P, int kParts, class Grid>
void AddExactly(const P* values, int64_t begin, int64_t end, const Grid (&grids)[kParts],
                double (&sums)[kParts][Grid::kSums]) noexcept {
  double lanes[Grid::kSums][kLanes] = {};
  Grid grid_of[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) grid_of[lane] = grids[lane % kParts];
  const auto take = [&](int64_t i, int lane) {
    const Grid& grid = grid_of[lane];
    if constexpr (Grid::kSums == 1) {
      lanes[0][lane] += (static_cast<double>(Widen(values[i])) + grid.magic) - grid.magic;
    } else {
      const double x = values[i] * grid.scale;
      const double rounded = (x + grid.magic) - grid.magic;
      lanes[0][lane] += rounded;
      lanes[1][lane] += ((x - rounded) + grid.magic2) - grid.magic2;
    }
  };
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) take(i + lane, lane);
  }
  for (int lane = 0; i < end; ++i, ++lane) take(i, lane);
  for (int s = 0; s < Grid::kSums; ++s) {
    for (int lane = 0; lane < kLanes; ++lane) sums[lane % kParts][s] += lanes[s][lane];
  }
}

// Sums all numbers, the parts of complex ones independently. Memory: at most 48 bytes per chunk of 32,768 parts or
// more.
template <class T>
Status SumReproducibly(const T* numbers, int64_t count, const Context& ctx, T* result) noexcept {
  using P = typename PartsOf<T>::Part;
  using A = SumType<P>;
  using Grid = SumGrid<A>;
  constexpr int kParts = PartsOf<T>::kParts;
  *result = T{};
  if (count == 0) return {};
  const P* const values = reinterpret_cast<const P*>(numbers);
  const int64_t size = count * kParts;
  Executor& executor = ExecutorOf(ctx);
  const cpu::Chunks blocks = cpu::SplitEvenly(executor, (size + kLanes - 1) / kLanes, 4096);
  const auto for_each_chunk = [&](const auto& f) {
    return cpu::ForEachChunkUntilStopped(executor, blocks, [&](int64_t chunk, int64_t begin, int64_t end) {
      f(chunk, begin * kLanes, std::min(end * kLanes, size));
    });
  };
  struct Partial {
    A largest[kParts];
    double sums[kParts][Grid::kSums];
  };
  auto partials = Scratch<Partial>::Make(ctx, blocks.count);
  if (!partials.ok()) return partials.status();
  std::memset(static_cast<void*>(partials->data()), 0, static_cast<size_t>(blocks.count) * sizeof(Partial));
  Status searched = for_each_chunk(
      [&](int64_t chunk, int64_t begin, int64_t end) { FindLargest(values, begin, end, (*partials)[chunk].largest); });
  if (!searched.ok()) return searched;
  Grid grids[kParts];
  for (int part = 0; part < kParts; ++part) {
    A largest = 0;
    for (int64_t chunk = 0; chunk < blocks.count; ++chunk)
      largest = std::max(largest, (*partials)[chunk].largest[part]);
    grids[part] = GridOf(largest, count);
  }
  Status summed = for_each_chunk([&](int64_t chunk, int64_t begin, int64_t end) {
    AddExactly(values, begin, end, grids, (*partials)[chunk].sums);
  });
  if (!summed.ok()) return summed;
  for (int part = 0; part < kParts; ++part) {
    double sums[Grid::kSums] = {};
    for (int64_t chunk = 0; chunk < blocks.count; ++chunk) {
      for (int s = 0; s < Grid::kSums; ++s) sums[s] += (*partials)[chunk].sums[part][s];
    }
    A total;
    if constexpr (Grid::kSums == 1) {
      total = RoundSum(grids[part], sums[0]);
    } else {
      total = RoundSums(grids[part], sums[0], sums[1], 1.0);
    }
    reinterpret_cast<P*>(result)[part] = Narrow<P>(total);
  }
  return {};
}

}  // namespace raggrad::sparse_fill_empty_rows
