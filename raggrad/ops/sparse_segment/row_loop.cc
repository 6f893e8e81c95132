// Compiled with RAGGRAD_TARGET_ISA naming the level. Everything here is a template of that level (or always inlined),
// so that no function in this object can be taken for one of another object: see cmake/raggrad_targets.cmake.
#include "raggrad/ops/sparse_segment/row_loop.h"

#include "raggrad/cpu/flush_subnormals.h"
#include "raggrad/ops/sparse_segment/row_ops.h"

namespace raggrad::sparse_segment {
namespace {

constexpr Isa kIsa = RAGGRAD_TARGET_ISA;

constexpr int64_t kLeaf = 64;      // contributions that pairwise summation adds left to right
constexpr int64_t kAhead = 12;     // contributions between a prefetch and its use: some 100 ns of work on short rows
constexpr int64_t kRowsAhead = 6;  // rows of a table between a prefetch and their update
constexpr int kLevels = 64;        // of the tree of leaves

// sums[c] += row[c] * scale: the product is rounded before it is added (-ffp-contract=off).
template <Isa I, bool kScaled, class T>
[[gnu::always_inline]] inline void Add(SumType<T>* __restrict sums, const T* __restrict row, SumType<T> scale,
                                       int64_t columns) noexcept {
  if constexpr (kIsShortFloat<T>) {
    float wide[kStrip];
    ::raggrad::cpu::Convert<I>::WidenRow(row, wide, columns);
    Add<I, kScaled, float>(sums, wide, scale, columns);
  } else {
    for (int64_t c = 0; c < columns; ++c) sums[c] += kScaled ? row[c] * scale : row[c];
  }
}

template <Isa I, class A>
[[gnu::always_inline]] inline void Clear(A* sums, int64_t columns) noexcept {
  for (int64_t c = 0; c < columns; ++c) sums[c] = A{0};
}

template <Isa I, bool kScaled, class T, class C>
[[gnu::always_inline]] inline void SumInOrder(const RowJob<T, C>& job, int64_t begin, int64_t end, int64_t column,
                                              int64_t columns, SumType<T>* sums) noexcept {
  using A = SumType<T>;
  Clear<I>(sums, columns);
  for (int64_t k = begin; k < end; ++k) {
    if (k + kAhead < job.num_contributions) {
      PrefetchRow<I>(job.grad + job.contributions[k + kAhead].segment() * job.width + column, columns);
    }
    const int64_t segment = job.contributions[k].segment();
    const A scale = kScaled ? job.scales[segment] : A{1};
    Add<I, kScaled>(sums, job.grad + segment * job.width + column, scale, columns);
  }
}

// Leaves left to right, then pairs of leaves, pairs of pairs, ...: level l of `tree` holds the sum of 2^l leaves that
// waits for its partner. At the end what waits is added from the smallest level up.
template <Isa I, bool kScaled, class T, class C>
void SumPairwise(const RowJob<T, C>& job, int64_t begin, int64_t end, int64_t column, int64_t columns,
                 SumType<T>* sums) noexcept {
  using A = SumType<T>;
  A tree[kLevels][kStrip];
  const int64_t leaves = (end - begin + kLeaf - 1) / kLeaf;
  for (int64_t leaf = 0; leaf < leaves; ++leaf) {
    const int64_t from = begin + leaf * kLeaf;
    SumInOrder<I, kScaled>(job, from, from + kLeaf < end ? from + kLeaf : end, column, columns, sums);
    int level = 0;
    for (; (leaf >> level & 1) != 0; ++level) {
      for (int64_t c = 0; c < columns; ++c) sums[c] = tree[level][c] + sums[c];
    }
    for (int64_t c = 0; c < columns; ++c) tree[level][c] = sums[c];
  }
  bool first = true;
  for (int level = 0; level < kLevels; ++level) {
    if ((leaves >> level & 1) == 0) continue;
    for (int64_t c = 0; c < columns; ++c) sums[c] = first ? tree[level][c] : tree[level][c] + sums[c];
    first = false;
  }
}

// What is handed over is what a stored gradient would be if it were summed again: rounded, and without minus zero.
template <Isa I, class T, class C>
[[gnu::always_inline]] inline void Update(const RowJob<T, C>& job, int64_t row, int64_t column, int64_t columns,
                                          SumType<T>* sums) noexcept {
  if constexpr (kIsShortFloat<T>) {
    T rounded[kStrip];
    Store<I>(sums, rounded, columns);
    ::raggrad::cpu::Convert<I>::WidenRow(rounded, sums, columns);
  }
  for (int64_t c = 0; c < columns; ++c) sums[c] += SumType<T>{0};
  const UpdateJob<SumType<T>>& update = *job.update;
  if (row + kRowsAhead < job.num_rows) update.prefetch(update, job.row_number(row + kRowsAhead), column, columns);
  update.update(update, job.row_number(row), column, columns, sums);
}

template <Isa I, bool kScaled, class T, class C>
[[gnu::always_inline]] inline void SumStrip(const RowJob<T, C>& job, int64_t row, int64_t column,
                                            int64_t columns) noexcept {
  SumType<T> sums[kStrip];
  const int64_t begin = job.row_starts[row];
  const int64_t end = job.row_starts[row + 1];
  if (job.pairwise && end - begin > kLeaf) {
    SumPairwise<I, kScaled>(job, begin, end, column, columns, sums);
  } else {
    SumInOrder<I, kScaled>(job, begin, end, column, columns, sums);
  }
  if (job.update != nullptr) {
    Update<I>(job, row, column, columns, sums);
  } else {
    Store<I>(sums, job.output + (job.dense ? job.row_number(row) : row) * job.width + column, columns);
  }
}

template <Isa I, bool kScaled, class T, class C>
void SumRowsScaled(const RowJob<T, C>& job, int64_t row_begin, int64_t row_end, int64_t column_begin,
                   int64_t column_end) noexcept {
  for (int64_t row = row_begin; row < row_end; ++row) {
    int64_t column = column_begin;
    for (; column + kStrip <= column_end; column += kStrip) SumStrip<I, kScaled>(job, row, column, kStrip);
    if (column < column_end) SumStrip<I, kScaled>(job, row, column, column_end - column);
  }
}

}  // namespace

template <Isa I, class T, class C>
void SumRows(const RowJob<T, C>& job, int64_t row_begin, int64_t row_end, int64_t column_begin,
             int64_t column_end) noexcept {
  const ::raggrad::cpu::ScopedFlushSubnormals flush;
  if (job.scales != nullptr) {
    SumRowsScaled<I, true>(job, row_begin, row_end, column_begin, column_end);
  } else {
    SumRowsScaled<I, false>(job, row_begin, row_end, column_begin, column_end);
  }
}

template void SumRows<kIsa>(const RowJob<Half, Contribution>&, int64_t, int64_t, int64_t, int64_t) noexcept;
template void SumRows<kIsa>(const RowJob<BFloat16, Contribution>&, int64_t, int64_t, int64_t, int64_t) noexcept;
template void SumRows<kIsa>(const RowJob<float, Contribution>&, int64_t, int64_t, int64_t, int64_t) noexcept;
template void SumRows<kIsa>(const RowJob<double, Contribution>&, int64_t, int64_t, int64_t, int64_t) noexcept;
template void SumRows<kIsa>(const RowJob<Half, WideContribution>&, int64_t, int64_t, int64_t, int64_t) noexcept;
template void SumRows<kIsa>(const RowJob<BFloat16, WideContribution>&, int64_t, int64_t, int64_t, int64_t) noexcept;
template void SumRows<kIsa>(const RowJob<float, WideContribution>&, int64_t, int64_t, int64_t, int64_t) noexcept;
template void SumRows<kIsa>(const RowJob<double, WideContribution>&, int64_t, int64_t, int64_t, int64_t) noexcept;

}  // namespace raggrad::sparse_segment
