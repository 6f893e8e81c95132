// Compiled with RAGGRAD_TARGET_ISA naming the level. Everything here is a template of that level (or always inlined),
// so that no function in this object can be taken for one of another object: see cmake/raggrad_targets.cmake.
#include "raggrad/ops/sparse_segment/row_loop.h"

#include "raggrad/cpu/flush_subnormals.h"
#include "raggrad/ops/sparse_segment/row_ops.h"

namespace raggrad::sparse_segment {
namespace {

constexpr Isa kIsa = RAGGRAD_TARGET_ISA;

constexpr int64_t kBlock = 64;  // columns summed together; the sums of a block stay in the L1 cache or in registers
constexpr int64_t kLeaf = 64;   // contributions that pairwise summation adds left to right
constexpr int64_t kAhead = 12;  // contributions between a prefetch and its use: some 100 ns of work on short rows
constexpr int kLevels = 64;     // of the tree of leaves

// sums[c] += row[c] * scale: the product is rounded before it is added (-ffp-contract=off).
template <Isa I, bool kScaled, class T>
[[gnu::always_inline]] inline void Add(Accumulator<I, T>* __restrict sums, const T* __restrict row,
                                       Accumulator<I, T> scale, int64_t columns) noexcept {
  if constexpr (kIs16Bit<I, T>) {
    float wide[kBlock];
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
                                              int64_t columns, Accumulator<I, T>* sums) noexcept {
  using A = Accumulator<I, T>;
  Clear<I>(sums, columns);
  for (int64_t k = begin; k < end; ++k) {
    if (k + kAhead < job.num_contributions) {
      PrefetchRow<I>(job.grad + job.contributions[k + kAhead].segment() * job.width + column, columns);
    }
    const int64_t segment = job.contributions[k].segment();
    const A scale = kScaled ? static_cast<A>(job.scales[segment]) : A{1};
    Add<I, kScaled>(sums, job.grad + segment * job.width + column, scale, columns);
  }
}

// Leaves left to right, then pairs of leaves, pairs of pairs, ...: level l of `tree` holds the sum of 2^l leaves that
// waits for its partner. At the end what waits is added from the smallest level up.
template <Isa I, bool kScaled, class T, class C>
void SumPairwise(const RowJob<T, C>& job, int64_t begin, int64_t end, int64_t column, int64_t columns,
                 Accumulator<I, T>* sums) noexcept {
  using A = Accumulator<I, T>;
  A tree[kLevels][kBlock];
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

template <Isa I, bool kScaled, class T, class C>
[[gnu::always_inline]] inline void SumBlock(const RowJob<T, C>& job, int64_t row, int64_t column,
                                            int64_t columns) noexcept {
  Accumulator<I, T> sums[kBlock];
  const int64_t begin = job.row_starts[row];
  const int64_t end = job.row_starts[row + 1];
  if (job.pairwise && end - begin > kLeaf) {
    SumPairwise<I, kScaled>(job, begin, end, column, columns, sums);
  } else {
    SumInOrder<I, kScaled>(job, begin, end, column, columns, sums);
  }
  const int64_t output_row = job.dense ? static_cast<int64_t>(job.contributions[begin].row) : row;
  Store<I>(sums, job.output + output_row * job.width + column, columns);
}

template <Isa I, bool kScaled, class T, class C>
void SumRowsScaled(const RowJob<T, C>& job, int64_t row_begin, int64_t row_end, int64_t column_begin,
                   int64_t column_end) noexcept {
  for (int64_t row = row_begin; row < row_end; ++row) {
    int64_t column = column_begin;
    for (; column + kBlock <= column_end; column += kBlock) SumBlock<I, kScaled>(job, row, column, kBlock);
    if (column < column_end) SumBlock<I, kScaled>(job, row, column, column_end - column);
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
