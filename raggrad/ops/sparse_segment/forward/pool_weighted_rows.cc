// Compiled once per level, which RAGGRAD_TARGET_ISA names. Everything here is a template of that level or always
// inlined, so that the linker cannot take a function of this object for one of another (ARCHITECTURE.md).
#include "raggrad/ops/sparse_segment/forward/pool_rows.h"
#include "raggrad/ops/sparse_segment/row_ops.h"
#include "raggrad/ops/sparse_segment/weights/divisor.h"

namespace raggrad::sparse_segment {
namespace {

constexpr int64_t kBlock = 128;  // columns of half and bfloat16 whose sums wait for their rounding
constexpr int kSums = 4;         // partial sums of a segment of kSplit ids and more
constexpr int64_t kSplit = 16;

// Ids between a prefetch and its use: as many as the segment has. Wide rows are pooled a few columns at a time, so the
// lines come while the others of this segment's columns are pooled, and no part of the work asks for more than its own.
template <Isa I>
[[gnu::always_inline]] inline int64_t IdsAhead(int64_t begin, int64_t end) noexcept {
  constexpr int64_t kLeast = 12;  // some 100 ns of work on short rows
  constexpr int64_t kMost = 64;
  const int64_t ids = end - begin;
  return ids < kLeast ? kLeast : ids < kMost ? ids : kMost;
}

// Calls add(sum, id) for the ids of a segment, and combine() once the partial sums are complete. Ids behind the last
// group of kSums are added afterwards, to sum 0.
template <class Add, class Combine>
[[gnu::always_inline]] inline void ForEachId(int64_t begin, int64_t end, const Add& add,
                                             const Combine& combine) noexcept {
  int64_t id = begin;
  if (end - begin >= kSplit) {
    for (; id + kSums <= end; id += kSums) {
#pragma GCC unroll 4
      for (int sum = 0; sum < kSums; ++sum) add(sum, id + sum);
    }
    combine();
  }
  for (; id < end; ++id) add(0, id);
}

// Sums start at +0, but a single product is stored as it is, even if it is -0.
template <class A>
[[gnu::always_inline]] inline A StartOf(int64_t begin, int64_t end) noexcept {
  return end - begin == 1 ? -A{0} : A{0};
}

// Pools kVectors vectors of columns in registers. A product is rounded before it is added (-ffp-contract=off).
template <Isa I, int kVectors, class T>
[[gnu::always_inline]] inline void PoolVectors(const PoolJob<T>& job, int64_t begin, int64_t end, int64_t column,
                                               SumType<T>* out) noexcept {
  using A = SumType<T>;
  using V = typename Vector<I, A>::Type;
  constexpr int64_t kLanes = Vector<I, A>::kLanes;
  constexpr int64_t kColumns = kVectors * kLanes;
  const int64_t ahead = IdsAhead<I>(begin, end);
  V sums[kSums][kVectors];
#pragma GCC unroll 4
  for (int s = 0; s < kSums; ++s) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sums[s][v] = StartOf<A>(begin, end) - V{};
  }
  const auto add = [&](int sum, int64_t id) __attribute__((always_inline)) {
    if (id + ahead < job.num_ids) PrefetchRow<I>(job.row(id + ahead) + column, kColumns);
    const T* const row = job.row(id) + column;
    const A weight = job.weights[id];
    const auto add_columns = [&](const auto* values) __attribute__((always_inline)) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[sum][v] += LoadVector<I>(values + v * kLanes) * weight;
    };
    if constexpr (kWidensInMemory<I, T>) {
      A wide[kColumns];
      cpu::Convert<I>::WidenRow(row, wide, kColumns);
      add_columns(wide);
    } else {
      add_columns(row);
    }
  };
  ForEachId(
      begin, end, add, [&]() __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int s = 1; s < kSums; ++s) {
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v) sums[0][v] += sums[s][v];
        }
      });
  using InMemory = typename Vector<I, A>::InMemory;
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) *reinterpret_cast<InMemory*>(out + v * kLanes) = sums[0][v];
}

// Pools the columns that do not fill a vector.
template <Isa I, class T>
[[gnu::always_inline]] inline void PoolFew(const PoolJob<T>& job, int64_t begin, int64_t end, int64_t column,
                                           int64_t columns, SumType<T>* out) noexcept {
  using A = SumType<T>;
  constexpr int64_t kLanes = Vector<I, A>::kLanes;
  A sums[kSums][kLanes];
  for (auto& sum : sums) {
    for (A& x : sum) x = StartOf<A>(begin, end);
  }
  const int64_t ahead = IdsAhead<I>(begin, end);
  const auto add = [&](int sum, int64_t id) __attribute__((always_inline)) {
    if (id + ahead < job.num_ids) PrefetchRow<I>(job.row(id + ahead) + column, columns);
    const T* const row = job.row(id) + column;
    for (int64_t c = 0; c < columns; ++c) sums[sum][c] += Load<I>(row[c]) * job.weights[id];
  };
  ForEachId(
      begin, end, add, [&]() __attribute__((always_inline)) {
        for (int s = 1; s < kSums; ++s) {
          for (int64_t c = 0; c < columns; ++c) sums[0][c] += sums[s][c];
        }
      });
  for (int64_t c = 0; c < columns; ++c) out[c] = sums[0][c];
}

// Pools kVectors vectors of columns at a time, then half as many, ..., then the rest.
template <Isa I, int kVectors, class T>
[[gnu::always_inline]] inline void PoolParts(const PoolJob<T>& job, int64_t begin, int64_t end, int64_t column,
                                             int64_t columns, SumType<T>* out) noexcept {
  constexpr int64_t kColumns = kVectors * Vector<I, SumType<T>>::kLanes;
  for (; columns >= kColumns; columns -= kColumns, column += kColumns, out += kColumns) {
    PoolVectors<I, kVectors>(job, begin, end, column, out);
  }
  if (columns == 0) return;
  if constexpr (kVectors > 1) {
    PoolParts<I, kVectors / 2>(job, begin, end, column, columns, out);
  } else {
    PoolFew<I>(job, begin, end, column, columns, out);
  }
}

template <Isa I, class T>
void PoolBlock(const PoolJob<T>& job, int64_t begin, int64_t end, int64_t column, int64_t columns, SumType<T> divisor,
               SumType<T>* out) noexcept {
  constexpr int kVectors = I == Isa::kX86V1 || I == Isa::kX86V3 ? 2 : 4;  // kSums times as many fit the registers
  PoolParts<I, kVectors>(job, begin, end, column, columns, out);
  if (job.combiner == SegmentCombiner::kSum) return;
  for (int64_t c = 0; c < columns; ++c) out[c] = Divide(out[c], divisor);
}

template <Isa I, class T>
void PoolWeightedSegments(const PoolJob<T>& job, const SegmentBatch& batch, int64_t column_begin,
                          int64_t column_end) noexcept {
  for (int64_t s = 0; s < batch.count; ++s) {
    const int64_t begin = batch.starts[s];
    const int64_t end = batch.starts[s + 1];
    const SumType<T> divisor = DivisorOf(job.combiner, job.divisor, job.weights, begin, end);
    T* const row = job.output + batch.rows[s] * job.width;
    for (int64_t column = column_begin; column < column_end; column += kBlock) {
      const int64_t columns = column_end - column < kBlock ? column_end - column : kBlock;
      if constexpr (kIsShortFloat<T>) {
        float sums[kBlock];
        PoolBlock<I>(job, begin, end, column, columns, divisor, sums);
        Store<I>(sums, row + column, columns);
      } else {
        PoolBlock<I>(job, begin, end, column, columns, divisor, row + column);
      }
    }
  }
}

template <Isa I, class... Ts>
consteval WeightedPoolLoops LoopsOf(TypeList<Ts...>) noexcept {
  return {PoolLoopOf<Ts>{&PoolWeightedSegments<I, Ts>}...};
}

}  // namespace

template <Isa I>
const WeightedPoolLoops& WeightedPoolLoopsFor() noexcept {
  static constexpr WeightedPoolLoops kLoops = LoopsOf<I>(FloatTypes{});
  return kLoops;
}

template const WeightedPoolLoops& WeightedPoolLoopsFor<RAGGRAD_TARGET_ISA>() noexcept;

}  // namespace raggrad::sparse_segment
