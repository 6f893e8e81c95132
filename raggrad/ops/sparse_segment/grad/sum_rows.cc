// Compiled once per level, which RAGGRAD_TARGET_ISA names. Everything here is a template of that level or always
// inlined, so that the linker cannot take a function of this object for one of another (ARCHITECTURE.md).
#include "raggrad/ops/sparse_segment/grad/sum_rows.h"

#include "raggrad/ops/sparse_segment/grad/update_strip.h"
#include "raggrad/ops/sparse_segment/row_ops.h"

namespace raggrad::sparse_segment {
namespace {

constexpr int64_t kLeaf = 64;   // contributions that pairwise summation adds left to right
constexpr int64_t kAhead = 12;  // contributions between a prefetch and its use: some 100 ns of work on short rows
constexpr int kLevels = 64;     // levels that the tree of leaves can have

// Calls f(row of the gradient, scale) for contributions [begin, end), in order.
template <Isa I, bool kScaled, class T, class C, class F>
[[gnu::always_inline]] inline void ForEachRow(const SumJob<T, C>& job, int64_t begin, int64_t end, int64_t column,
                                              int64_t columns, const F& f) noexcept {
  for (int64_t k = begin; k < end; ++k) {
    if (k + kAhead < job.num_contributions) {
      PrefetchRow<I>(job.grad + job.contributions[k + kAhead].segment() * job.width + column, columns);
    }
    const int64_t segment = job.contributions[k].segment();
    const SumType<T> scale = !kScaled                             ? SumType<T>{1}
                             : job.contribution_scales != nullptr ? job.contribution_scales[k]
                                                                  : job.scales[segment];
    f(job.grad + segment * job.width + column, scale);
  }
}

// Sums kVectors vectors of columns in registers. A product is rounded before it is added (-ffp-contract=off).
template <Isa I, bool kScaled, int kVectors, class T, class C>
[[gnu::always_inline]] inline void SumVectors(const SumJob<T, C>& job, int64_t begin, int64_t end, int64_t column,
                                              SumType<T>* sums) noexcept {
  using A = SumType<T>;
  using V = typename Vector<I, A>::Type;
  constexpr int64_t kLanes = Vector<I, A>::kLanes;
  V totals[kVectors] = {};
  ForEachRow<I, kScaled>(job, begin, end, column, kVectors * kLanes, [&](const T* row, A scale) {
    const auto add = [&](const auto* values) __attribute__((always_inline)) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        const V x = LoadVector<I>(values + v * kLanes);
        totals[v] += kScaled ? x * scale : x;
      }
    };
    if constexpr (kWidensInMemory<I, T> || (std::is_same_v<T, BFloat16> && I != Isa::kArmV8)) {
      A wide[kVectors * kLanes];
      cpu::Convert<I>::WidenRow(row, wide, kVectors * kLanes);
      add(wide);
    } else {
      add(row);
    }
  });
  if constexpr (kIsShortFloat<T> && I != Isa::kArmV8) {
    __builtin_memcpy(sums, totals, sizeof(totals));
  } else {  // g++ 12 would keep the sums in memory, and copy them from there
    using InMemory = typename Vector<I, A>::InMemory;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) *reinterpret_cast<InMemory*>(sums + v * kLanes) = totals[v];
  }
}

// Sums the columns that do not fill a vector.
template <Isa I, bool kScaled, class T, class C>
[[gnu::always_inline]] inline void SumFew(const SumJob<T, C>& job, int64_t begin, int64_t end, int64_t column,
                                          int64_t columns, SumType<T>* sums) noexcept {
  using A = SumType<T>;
  A totals[Vector<I, A>::kLanes] = {};
  ForEachRow<I, kScaled>(job, begin, end, column, columns, [&](const T* row, A scale) {
    for (int64_t c = 0; c < columns; ++c) {
      A x;
      if constexpr (kIsShortFloat<T>) {
        x = cpu::Convert<I>::Widen(row[c]);
      } else {
        x = row[c];
      }
      totals[c] += kScaled ? x * scale : x;
    }
  });
  for (int64_t c = 0; c < columns; ++c) sums[c] = totals[c];
}

// Sums kVectors vectors of columns at a time, then half as many, ..., then the rest.
template <Isa I, bool kScaled, int kVectors, class T, class C>
[[gnu::always_inline]] inline void SumParts(const SumJob<T, C>& job, int64_t begin, int64_t end, int64_t column,
                                            int64_t columns, SumType<T>* sums) noexcept {
  constexpr int64_t kColumns = kVectors * Vector<I, SumType<T>>::kLanes;
  for (; columns >= kColumns; columns -= kColumns, column += kColumns, sums += kColumns) {
    SumVectors<I, kScaled, kVectors>(job, begin, end, column, sums);
  }
  if (columns == 0) return;
  if constexpr (kVectors > 1) {
    SumParts<I, kScaled, kVectors / 2>(job, begin, end, column, columns, sums);
  } else {
    SumFew<I, kScaled>(job, begin, end, column, columns, sums);
  }
}

// Sums left to right.
template <Isa I, bool kScaled, class T, class C>
[[gnu::always_inline]] inline void SumSequentially(const SumJob<T, C>& job, int64_t begin, int64_t end, int64_t column,
                                                   int64_t columns, SumType<T>* sums) noexcept {
  constexpr int kRegisters = I == Isa::kX86V1 ? 8 : 16;  // registers that can hold sums
  constexpr int kStripVectors = static_cast<int>(kStrip<SumType<T>> / Vector<I, SumType<T>>::kLanes);
  SumParts<I, kScaled, (kStripVectors < kRegisters ? kStripVectors : kRegisters)>(job, begin, end, column, columns,
                                                                                  sums);
}

// Sums leaves left to right, then pairs of leaves, pairs of pairs, ... Level l of `tree` holds a sum of 2^l leaves that
// waits for its partner. At the end the waiting sums are added from the lowest level up.
template <Isa I, bool kScaled, class T, class C>
void SumAsTree(const SumJob<T, C>& job, int64_t begin, int64_t end, int64_t column, int64_t columns,
               SumType<T>* sums) noexcept {
  using A = SumType<T>;
  A tree[kLevels][kStrip<A>];
  const int64_t leaves = (end - begin + kLeaf - 1) / kLeaf;
  for (int64_t leaf = 0; leaf < leaves; ++leaf) {
    const int64_t from = begin + leaf * kLeaf;
    SumSequentially<I, kScaled>(job, from, from + kLeaf < end ? from + kLeaf : end, column, columns, sums);
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
[[gnu::always_inline]] inline void SumStrip(const SumJob<T, C>& job, int64_t row, int64_t column,
                                            int64_t columns) noexcept {
  T* const out = job.sink.optimizer != nullptr
                     ? nullptr
                     : job.sink.output + (job.sink.dense ? job.table_row(row) : row) * job.width + column;
  SumType<T> strip[kStrip<SumType<T>>];
  SumType<T>* sums = strip;
  if constexpr (!kIsShortFloat<T>) {
    if (out != nullptr) sums = out;
  }
  const int64_t begin = job.row_starts[row];
  const int64_t end = job.row_starts[row + 1];
  if (job.accumulation == Accumulation::kFast && end - begin > kLeaf) {
    SumAsTree<I, kScaled>(job, begin, end, column, columns, sums);
  } else {
    SumSequentially<I, kScaled>(job, begin, end, column, columns, sums);
  }
  if (job.sink.optimizer != nullptr) {
    Update<I>(job, row, column, columns, sums);
  } else if constexpr (kIsShortFloat<T>) {
    Store<I>(sums, out, columns);
  }
}

template <Isa I, bool kScaled, class T, class C>
void SumRowsScaled(const SumJob<T, C>& job, int64_t row_begin, int64_t row_end, int64_t column_begin,
                   int64_t column_end) noexcept {
  for (int64_t row = row_begin; row < row_end; ++row) {
    int64_t column = column_begin;
    constexpr int64_t kColumns = kStrip<SumType<T>>;
    for (; column + kColumns <= column_end; column += kColumns) SumStrip<I, kScaled>(job, row, column, kColumns);
    if (column < column_end) SumStrip<I, kScaled>(job, row, column, column_end - column);
  }
}

template <Isa I, class T, class C>
void SumRows(const SumJob<T, C>& job, int64_t row_begin, int64_t row_end, int64_t column_begin,
             int64_t column_end) noexcept {
  if (job.scales != nullptr || job.contribution_scales != nullptr) {
    SumRowsScaled<I, true>(job, row_begin, row_end, column_begin, column_end);
  } else {
    SumRowsScaled<I, false>(job, row_begin, row_end, column_begin, column_end);
  }
}

template <Isa I, class T>
consteval SumLoopsOf<T> LoopsOf() noexcept {
  SumLoopsOf<T> loops = {&SumRows<I, T, Contribution>, nullptr};
  if constexpr (I == kBaselineIsa) loops.wide = &SumRows<I, T, WideContribution>;
  return loops;
}

template <Isa I, class... Ts>
consteval SumLoops LoopsOf(TypeList<Ts...>) noexcept {
  return {LoopsOf<I, Ts>()...};
}

}  // namespace

template <Isa I>
const SumLoops& SumLoopsFor() noexcept {
  static constexpr SumLoops kLoops = LoopsOf<I>(FloatTypes{});
  return kLoops;
}

template const SumLoops& SumLoopsFor<RAGGRAD_TARGET_ISA>() noexcept;

}  // namespace raggrad::sparse_segment
