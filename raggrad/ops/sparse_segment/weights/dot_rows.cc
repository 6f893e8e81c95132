// Compiled once per level, which RAGGRAD_TARGET_ISA names. Everything here is a template of that level or always
// inlined, so that the linker cannot take a function of this object for one of another (ARCHITECTURE.md).
#include "raggrad/ops/sparse_segment/weights/dot_rows.h"

#include "raggrad/ops/sparse_segment/row_ops.h"

namespace raggrad::sparse_segment {
namespace {

constexpr int64_t kAhead = 12;  // ids between a prefetch and its use: some 100 ns of work on short rows

// kDotLanes columns of a row in the type of sums.
template <Isa I, class T>
struct Columns {
  using A = SumType<T>;
  static constexpr int64_t kLanes = Vector<I, A>::kLanes;
  static constexpr int kVectors = static_cast<int>(kDotLanes / kLanes);

  [[gnu::always_inline]] explicit Columns(const T* row) noexcept {
    if constexpr (kWidensInMemory<I, T>) {
      float wide[kDotLanes];
      cpu::Convert<I>::WidenRow(row, wide, kDotLanes);
      Load(wide);
    } else {
      Load(row);
    }
  }
  template <class From>
  [[gnu::always_inline]] void Load(const From* values) noexcept {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) vectors[v] = LoadVector<I>(values + v * kLanes);
  }

  typename Vector<I, A>::Type vectors[kVectors];
};

// The dot products of grad with the rows of kRows ids. Lane l sums the products of columns l, l + 16, l + 32, ... left
// to right from +0. Then lanes l and l + 8 are added, l and l + 4, l and l + 2, and the last two.
//
// Rows of later ids are prefetched a line or two at a time, between products: a processor waits for some 12 lines at
// once, and would do nothing else while it is asked for more (segment-A with power-law ids took 1.25 times as long).
template <Isa I, int kRows, class T>
[[gnu::always_inline]] inline void Dot(const DotJob<T>& job, const T* grad, int64_t id) noexcept {
  using A = SumType<T>;
  constexpr int kVectors = Columns<I, T>::kVectors;
  const T* rows[kRows];
  const T* later[kRows];
  for (int r = 0; r < kRows; ++r) {
    rows[r] = job.row(id + r);
    const int64_t next = id + r + kAhead;
    later[r] = job.row(next < job.num_ids ? next : job.num_ids - 1);
  }
  typename Vector<I, A>::Type sums[kRows][kVectors] = {};
  int64_t c = 0;
  for (; c + kDotLanes <= job.width; c += kDotLanes) {
    const Columns<I, T> g(grad + c);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      PrefetchRow<I>(later[r] + c, kDotLanes);
      const Columns<I, T> x(rows[r] + c);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] += g.vectors[v] * x.vectors[v];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    if (c < job.width) __builtin_prefetch(later[r] + c);
    A lanes[kDotLanes];
    __builtin_memcpy(lanes, sums[r], sizeof(lanes));
    for (int64_t l = 0; c + l < job.width; ++l) lanes[l] += Load<I>(grad[c + l]) * Load<I>(rows[r][c + l]);
#pragma GCC unroll 4
    for (int64_t half = kDotLanes / 2; half > 0; half /= 2) {
      for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    job.dots[id + r] = lanes[0];
  }
}

template <Isa I, class T>
void DotRows(const DotJob<T>& job, const T* grad, int64_t begin, int64_t end) noexcept {
  // Rows that are multiplied together, so that additions need not wait for each other: as many as the registers hold.
  constexpr int kVectors = Columns<I, T>::kVectors;
  constexpr int kRows = kVectors <= 2 ? 4 : kVectors == 4 ? 2 : 1;
  int64_t id = begin;
  for (; id + kRows <= end; id += kRows) Dot<I, kRows>(job, grad, id);
  for (; id < end; ++id) Dot<I, 1>(job, grad, id);
}

template <Isa I, class... Ts>
consteval DotLoops LoopsOf(TypeList<Ts...>) noexcept {
  return {DotLoopOf<Ts>{&DotRows<I, Ts>}...};
}

}  // namespace

template <Isa I>
const DotLoops& DotLoopsFor() noexcept {
  static constexpr DotLoops kLoops = LoopsOf<I>(FloatTypes{});
  return kLoops;
}

template const DotLoops& DotLoopsFor<RAGGRAD_TARGET_ISA>() noexcept;

}  // namespace raggrad::sparse_segment
