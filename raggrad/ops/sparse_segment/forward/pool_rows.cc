// Compiled once per level, which RAGGRAD_TARGET_ISA names. Everything here is a template of that level or always
// inlined, so that the linker cannot take a function of this object for one of another (ARCHITECTURE.md).
#include "raggrad/ops/sparse_segment/forward/pool_rows.h"

#include "raggrad/ops/sparse_segment/row_ops.h"
#include "raggrad/ops/sparse_segment/weights/divisor.h"

namespace raggrad::sparse_segment {
namespace {

constexpr int64_t kBlock = 128;       // columns pooled together: nine rows of a block and their sums fit in L1
constexpr int64_t kRowsPerGroup = 8;  // rows that are summed by themselves before they are added to the total
constexpr int64_t kAhead = 12;        // ids between a prefetch and its use: some 100 ns of work on short rows
// Segments of fewer rows are scaled by a reciprocal, after their only group; the others are divided at the end.
constexpr int64_t kDivided = 10;

// Compilers vectorise the loop of the sum for all types but half on x86. There its vectors are written out, or, on the
// level that cannot widen half in registers, it is widened before the sum.
template <Isa I, class T>
constexpr bool kIsHalfOnX86 = I != Isa::kArmV8&& std::is_same_v<T, Half>;

// Sets sums[c] = (rows[0][c] + rows[1][c] + ...) * factor for a segment's first group. Adds the sum of any other group
// to sums[c].
template <Isa I, bool kFirst, int kRows, class T>
[[gnu::always_inline]] inline void AddRows(const T* const (&rows)[kRows], SumType<T> factor,
                                           SumType<T>* __restrict sums, int64_t columns) noexcept {
  using A = SumType<T>;
  for (int64_t c = 0; c < columns; ++c) {
    A sum = Load<I>(rows[0][c]);
    for (int r = 1; r < kRows; ++r) sum = static_cast<A>(sum + Load<I>(rows[r][c]));
    if constexpr (!kFirst) {
      sums[c] = static_cast<A>(sums[c] + sum);
    } else if constexpr (std::is_floating_point_v<A>) {
      sums[c] = sum * factor;
    } else {
      sums[c] = sum;
    }
  }
}

// The same for as many columns as fill vectors. Returns their number.
template <Isa I, bool kFirst, int kRows>
[[gnu::always_inline]] inline int64_t AddHalfVectors(const Half* const (&rows)[kRows], float factor,
                                                     float* __restrict sums, int64_t columns) noexcept {
  using V = typename Vector<I, float>::Type;
  constexpr int64_t kLanes = Vector<I, float>::kLanes;
  int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    V sum = LoadVector<I>(rows[0] + c);
#pragma GCC unroll 16
    for (int r = 1; r < kRows; ++r) sum += LoadVector<I>(rows[r] + c);
    sum = kFirst ? sum * factor : LoadVector<I>(sums + c) + sum;
    __builtin_memcpy(sums + c, &sum, sizeof(sum));
  }
  return c;
}

// Adds the rows that ids [id, id + kRows) name.
template <Isa I, bool kFirst, int kRows, class T>
[[gnu::always_inline]] inline void AddGroup(const PoolJob<T>& job, int64_t id, int64_t column, int64_t columns,
                                            SumType<T> factor, SumType<T>* sums) noexcept {
  const T* rows[kRows];
  for (int r = 0; r < kRows; ++r) {
    rows[r] = job.row(id + r) + column;
    if (id + r + kAhead < job.num_ids) PrefetchRow<I>(job.row(id + r + kAhead) + column, columns);
  }
  if constexpr (kIsHalfOnX86<I, T>) {
    int64_t done = 0;
    if constexpr (kLoadsHalf<I>) done = AddHalfVectors<I, kFirst>(rows, factor, sums, columns);
    if (done == columns) return;
    float wide[kRows][kBlock];
    const float* wide_rows[kRows];
    for (int r = 0; r < kRows; ++r) {
      cpu::Convert<I>::WidenRow(rows[r] + done, wide[r], columns - done);
      wide_rows[r] = wide[r];
    }
    AddRows<I, kFirst>(wide_rows, factor, sums + done, columns - done);
  } else {
    AddRows<I, kFirst>(rows, factor, sums, columns);
  }
}

// Adds the first group, which has kRows or more rows: `rows` of them.
template <Isa I, int kRows, class T>
[[gnu::always_inline]] inline void AddFirstGroup(const PoolJob<T>& job, int64_t rows, int64_t id, int64_t column,
                                                 int64_t columns, SumType<T> factor, SumType<T>* sums) noexcept {
  if constexpr (kRows <= kRowsPerGroup) {
    if (rows != kRows) return AddFirstGroup<I, kRows + 1>(job, rows, id, column, columns, factor, sums);
  }
  AddGroup<I, true, kRows>(job, id, column, columns, factor, sums);
}

// The divisor of a sum of n rows. Integers are only summed.
template <Isa I, class A>
[[gnu::always_inline]] inline A Divisor(SegmentCombiner combiner, int64_t n) noexcept {
  if constexpr (std::is_floating_point_v<A>) return CountDivisor<A>(combiner, n);
  return A{1};
}

// Pools ids [begin, end), two or more.
template <Isa I, class T>
void PoolBlock(const PoolJob<T>& job, int64_t begin, int64_t end, int64_t column, int64_t columns,
               SumType<T>* sums) noexcept {
  using A = SumType<T>;
  const int64_t n = end - begin;
  const A divisor = Divisor<I, A>(job.combiner, n);
  const A factor = n < kDivided ? static_cast<A>(A{1} / divisor) : A{1};
  // The rows that do not fill a group come first; a single row joins the group behind it.
  const int64_t first = n % kRowsPerGroup < 2 ? n % kRowsPerGroup + kRowsPerGroup : n % kRowsPerGroup;
  AddFirstGroup<I, 2>(job, first, begin, column, columns, factor, sums);
  for (int64_t id = begin + first; id < end; id += kRowsPerGroup) {
    AddGroup<I, false, kRowsPerGroup>(job, id, column, columns, factor, sums);
  }
  if constexpr (std::is_floating_point_v<A>) {
    if (n < kDivided || job.combiner == SegmentCombiner::kSum) return;
    for (int64_t c = 0; c < columns; ++c) sums[c] /= divisor;
  }
}

template <Isa I, class T>
void PoolSegment(const PoolJob<T>& job, int64_t begin, int64_t end, int64_t column, int64_t columns,
                 T* output) noexcept {
  if (end - begin == 1) {
    __builtin_memcpy(static_cast<void*>(output), job.row(begin) + column, static_cast<size_t>(columns) * sizeof(T));
  } else if constexpr (kIsShortFloat<T>) {
    float sums[kBlock];
    PoolBlock<I>(job, begin, end, column, columns, sums);
    Store<I>(sums, output, columns);
  } else {
    PoolBlock<I>(job, begin, end, column, columns, output);
  }
}

template <Isa I, class T>
void PoolSegments(const PoolJob<T>& job, const SegmentBatch& batch, int64_t column_begin, int64_t column_end) noexcept {
  for (int64_t s = 0; s < batch.count; ++s) {
    T* row = job.output + batch.rows[s] * job.width;
    for (int64_t column = column_begin; column < column_end; column += kBlock) {
      const int64_t columns = column_end - column < kBlock ? column_end - column : kBlock;
      PoolSegment<I>(job, batch.starts[s], batch.starts[s + 1], column, columns, row + column);
    }
  }
}

template <Isa I, class... Ts>
consteval PoolLoops LoopsOf(cpu::PerType<PoolLoopOf, TypeList<Ts...>>) noexcept {
  return {PoolLoopOf<Ts>{&PoolSegments<I, Ts>}...};
}

}  // namespace

template <Isa I>
const PoolLoops& PoolLoopsFor() noexcept {
  static constexpr PoolLoops kLoops = LoopsOf<I>(PoolLoops{});
  return kLoops;
}

template const PoolLoops& PoolLoopsFor<RAGGRAD_TARGET_ISA>() noexcept;

}  // namespace raggrad::sparse_segment
