// Compiled once per level, which RAGGRAD_TARGET_ISA names. Everything here is a template of that level or always
// inlined, so that the linker cannot take a function of this object for one of another (ARCHITECTURE.md).
#include "raggrad/ops/sparse_segment/grad/sum_reproducible.h"

#include "raggrad/ops/sparse_segment/exact_rows.h"
#include "raggrad/ops/sparse_segment/grad/update_strip.h"

namespace raggrad::sparse_segment {
namespace {

// The contributions of a gradient (exact_rows.h).
template <Isa I, bool kHasFactors, class Value, class C>
struct GradTerms {
  using T = Value;
  static constexpr bool kScaled = kHasFactors;
  const ReproducibleJob<T, C>& job;

  [[gnu::always_inline]] int64_t width() const noexcept { return job.sum.width; }
  [[gnu::always_inline]] int64_t count() const noexcept { return job.sum.num_contributions; }
  [[gnu::always_inline]] bool lies_ready() const noexcept { return job.largest != nullptr; }
  [[gnu::always_inline]] const T* row(int64_t k) const noexcept {
    return job.sum.grad + job.sum.contributions[k].segment() * job.sum.width;
  }
  [[gnu::always_inline]] SumType<T> factor(int64_t k) const noexcept {
    return job.sum.contribution_scales != nullptr ? job.sum.contribution_scales[k]
                                                  : job.sum.scales[job.sum.contributions[k].segment()];
  }
  [[gnu::always_inline]] SumType<T> largest(int64_t k) const noexcept {
    return lies_ready() ? job.largest[job.sum.contributions[k].segment()] : LargestFinite<I>(row(k), width());
  }
};

// Calls f(terms) with terms that know whether there are factors.
template <Isa I, class T, class C, class F>
[[gnu::always_inline]] inline auto WithTerms(const ReproducibleJob<T, C>& job, const F& f) noexcept {
  if (job.sum.scales != nullptr || job.sum.contribution_scales != nullptr) return f(GradTerms<I, true, T, C>{job});
  return f(GradTerms<I, false, T, C>{job});
}

// Rounds the sums of some columns into the sink.
template <Isa I, class T, class C>
[[gnu::always_inline]] inline void FinishColumns(const SumJob<T, C>& job, int64_t row, const SumGrid<SumType<T>>& grid,
                                                 int64_t column, int64_t columns, const double* sums,
                                                 int64_t stride) noexcept {
  using A = SumType<T>;
  while (columns > 0) {
    const int64_t strip = columns < kStrip<A> ? columns : kStrip<A>;
    A rounded[kStrip<A>];
    if (job.sink.optimizer != nullptr) {
      RoundRow<I>(grid, sums, stride, 1.0, rounded, strip);
      Update<I>(job, row, column, strip, rounded);
    } else {
      T* const out = job.sink.output + (job.sink.dense ? job.table_row(row) : row) * job.width + column;
      if constexpr (kIsShortFloat<T>) {
        RoundRow<I>(grid, sums, stride, 1.0, rounded, strip);
        Store<I>(rounded, out, strip);
      } else {
        RoundRow<I>(grid, sums, stride, 1.0, out, strip);
      }
    }
    column += strip;
    columns -= strip;
    sums += strip;
  }
}

template <Isa I, class T, class C>
void SumRows(const ReproducibleJob<T, C>& job, int64_t row_begin, int64_t row_end) noexcept {
  using Grid = SumGrid<SumType<T>>;
  WithTerms<I>(job, [&](const auto& terms) {
    double sums[Grid::kSums * kExactColumns];
    for (int64_t row = row_begin; row < row_end; ++row) {
      const int64_t begin = job.sum.row_starts[row];
      const int64_t end = job.sum.row_starts[row + 1];
      const Grid grid = GridOf(LargestTerm<I>(terms, begin, end), end - begin);
      for (int64_t column = 0; column < job.sum.width; column += kExactColumns) {
        const int64_t rest = job.sum.width - column;
        const int64_t columns = rest < kExactColumns ? rest : kExactColumns;
        SumTerms<I>(terms, grid, begin, end, column, columns, sums, kExactColumns);
        FinishColumns<I>(job.sum, row, grid, column, columns, sums, kExactColumns);
      }
    }
  });
}

template <Isa I, class T, class C>
SumType<T> Largest(const ReproducibleJob<T, C>& job, cpu::Span contributions) noexcept {
  return WithTerms<I>(job,
                      [&](const auto& terms) { return LargestTerm<I>(terms, contributions.begin, contributions.end); });
}

template <Isa I, class T, class C>
void SumPiece(const ReproducibleJob<T, C>& job, const SumGrid<SumType<T>>& grid, cpu::Span contributions,
              cpu::Span columns, double* sums) noexcept {
  WithTerms<I>(job, [&](const auto& terms) {
    for (int64_t column = columns.begin; column < columns.end; column += kExactColumns) {
      const int64_t rest = columns.end - column;
      SumTerms<I>(terms, grid, contributions.begin, contributions.end, column,
                  rest < kExactColumns ? rest : kExactColumns, sums + column, job.sum.width);
    }
  });
}

template <Isa I, class T, class C>
void Finish(const ReproducibleJob<T, C>& job, int64_t row, const SumGrid<SumType<T>>& grid,
            const double* sums) noexcept {
  FinishColumns<I>(job.sum, row, grid, 0, job.sum.width, sums, job.sum.width);
}

template <Isa I, class T>
void LargestOfRows(const T* rows, int64_t count, int64_t width, SumType<T>* out) noexcept {
  for (int64_t row = 0; row < count; ++row) out[row] = LargestFinite<I>(rows + row * width, width);
}

template <Isa I, class T, class C>
inline constexpr ReproducibleFunctions<T, C> kFunctions = {&SumRows<I, T, C>, &Largest<I, T, C>, &SumPiece<I, T, C>,
                                                           &Finish<I, T, C>};

template <Isa I, class... Ts>
consteval ReproducibleLoops LoopsOf(TypeList<Ts...>) noexcept {
  return {ReproducibleLoopsOf<Ts>{&LargestOfRows<I, Ts>, kFunctions<I, Ts, Contribution>,
                                  kFunctions<I, Ts, WideContribution>}...};
}

}  // namespace

template <Isa I>
const ReproducibleLoops& ReproducibleLoopsFor() noexcept {
  static constexpr ReproducibleLoops kLoops = LoopsOf<I>(FloatTypes{});
  return kLoops;
}

template const ReproducibleLoops& ReproducibleLoopsFor<RAGGRAD_TARGET_ISA>() noexcept;

}  // namespace raggrad::sparse_segment
