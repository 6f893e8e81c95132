// Compiled once per level, which RAGGRAD_TARGET_ISA names. Everything here is a template of that level or always
// inlined, so that the linker cannot take a function of this object for one of another (ARCHITECTURE.md).
#include "raggrad/ops/sparse_segment/forward/pool_reproducible.h"

#include "raggrad/ops/sparse_segment/exact_rows.h"
#include "raggrad/ops/sparse_segment/weights/divisor.h"

namespace raggrad::sparse_segment {
namespace {

// The rows that ids name (exact_rows.h). A segment is searched for its largest value just before it is summed, when it
// is in the cache: a pass over the table would read rows that no id names.
template <Isa I, bool kWeighted, class Value>
struct PoolTerms {
  using T = Value;
  static constexpr bool kScaled = kWeighted;
  const PoolJob<T>& job;

  [[gnu::always_inline]] int64_t width() const noexcept { return job.width; }
  [[gnu::always_inline]] int64_t count() const noexcept { return job.num_ids; }
  [[gnu::always_inline]] bool lies_ready() const noexcept { return false; }
  [[gnu::always_inline]] void PrefetchDescription(int64_t) const noexcept {}
  [[gnu::always_inline]] const T* row(int64_t id) const noexcept { return job.row(id); }
  [[gnu::always_inline]] SumType<T> factor(int64_t id) const noexcept {
    return kWeighted ? job.weights[id] : SumType<T>{1};
  }
  [[gnu::always_inline]] Magnitudes<SumType<T>> magnitudes(int64_t id) const noexcept {
    const auto of_row = MagnitudesOf<I>(row(id), width());
    return kWeighted ? ProductMagnitudes<I>(row(id), width(), of_row, factor(id)) : of_row;
  }
  [[gnu::always_inline]] SumType<T> smallest(int64_t) const noexcept { return 0; }
};

// Calls f(terms) with terms that know whether there are weights.
template <Isa I, class T, class F>
[[gnu::always_inline]] inline auto WithTerms(const PoolJob<T>& job, const F& f) noexcept {
  if (job.weights != nullptr) return f(PoolTerms<I, true, T>{job});
  return f(PoolTerms<I, false, T>{job});
}

template <Isa I, class T>
[[gnu::always_inline]] inline double DivisorOf(const PoolJob<T>& job, int64_t row, int64_t count) noexcept {
  return job.divisors != nullptr ? job.divisors[row] : CountDivisor<double>(job.combiner, count);
}

// Calls round(column, columns, target) for all columns, a few at a time, and stores them; zeros if the divisor is 0.
template <Isa I, class T, class F>
[[gnu::always_inline]] inline void FinishRow(T* out, int64_t width, double divisor, const F& round) noexcept {
  if (divisor == 0) {
    for (int64_t c = 0; c < width; ++c) out[c] = T{};
    return;
  }
  for (int64_t column = 0; column < width; column += kExactColumns) {
    const int64_t columns = width - column < kExactColumns ? width - column : kExactColumns;
    if constexpr (kIsShortFloat<T>) {
      float buffer[kExactColumns];
      round(column, columns, buffer);
      Store<I>(buffer, out + column, columns);
    } else {
      round(column, columns, out + column);
    }
  }
}

template <Isa I, class T>
void PoolSegments(const PoolJob<T>& job, const SegmentBatch& batch, int64_t, int64_t) noexcept {
  WithTerms<I>(job, [&](const auto& terms) {
    for (int64_t s = 0; s < batch.count; ++s) {
      const int64_t begin = batch.starts[s];
      const int64_t end = batch.starts[s + 1];
      const double divisor = DivisorOf<I>(job, batch.rows[s], end - begin);
      T* const out = job.output + batch.rows[s] * job.width;
      if constexpr (std::is_same_v<SumType<T>, float>) {
        double sums[kExactColumns];
        if (job.width <= kExactColumns && SumUnknownTerms<I>(terms, begin, end, sums)) {
          FinishRow<I>(out, job.width, divisor, [&](int64_t, int64_t columns, float* target) {
            RoundRow<I>(UnknownGrid<I>::grid, sums, kExactColumns, divisor, target, columns);
          });
          continue;
        }
      }
      const RowGrid<I, SumType<T>> grid(MagnitudesOfTerms<I>(terms, begin, end), end - begin);
      FinishRow<I>(out, job.width, divisor, [&](int64_t column, int64_t columns, SumType<T>* target) {
        SumAndRound<I>(terms, grid, begin, end, column, columns, divisor, target);
      });
    }
  });
}

template <Isa I, class T>
SumType<T> Largest(const PoolJob<T>& job, cpu::Span ids) noexcept {
  return WithTerms<I>(job, [&](const auto& terms) { return MagnitudesOfTerms<I>(terms, ids.begin, ids.end).largest; });
}

template <Isa I, class T>
void SumPart(const PoolJob<T>& job, const SumGrid<SumType<T>>& grid, cpu::Span ids, cpu::Span columns,
             double* sums) noexcept {
  WithTerms<I>(job, [&](const auto& terms) {
    SumColumns<I>(terms, grid, ids.begin, ids.end, columns.begin, columns.end, sums);
  });
}

template <Isa I, class T>
void Finish(const PoolJob<T>& job, int64_t row, int64_t count, const SumGrid<SumType<T>>& grid,
            const double* sums) noexcept {
  const double divisor = DivisorOf<I>(job, row, count);
  FinishRow<I>(job.output + row * job.width, job.width, divisor,
               [&](int64_t column, int64_t columns, SumType<T>* target) {
                 RoundRow<I>(grid, sums + column, job.width, divisor, target, columns);
               });
}

template <Isa I, class T>
inline constexpr PoolReproducibly<T> kFunctions = {&PoolSegments<I, T>, &Largest<I, T>, &SumPart<I, T>, &Finish<I, T>};

template <Isa I, class... Ts>
consteval PoolReproduciblyLoops LoopsOf(TypeList<Ts...>) noexcept {
  return {kFunctions<I, Ts>...};
}

}  // namespace

template <Isa I>
const PoolReproduciblyLoops& PoolReproduciblyLoopsFor() noexcept {
  static constexpr PoolReproduciblyLoops kLoops = LoopsOf<I>(FloatTypes{});
  return kLoops;
}

template const PoolReproduciblyLoops& PoolReproduciblyLoopsFor<RAGGRAD_TARGET_ISA>() noexcept;

}  // namespace raggrad::sparse_segment
