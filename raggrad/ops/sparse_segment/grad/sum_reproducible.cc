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
  [[gnu::always_inline]] bool lies_ready() const noexcept { return job.rows != nullptr; }
  [[gnu::always_inline]] void PrefetchDescription(int64_t k) const noexcept {
    __builtin_prefetch(job.rows + job.sum.contributions[k].segment());
  }
  [[gnu::always_inline]] const T* row(int64_t k) const noexcept {
    return job.sum.grad + job.sum.contributions[k].segment() * job.sum.width;
  }
  [[gnu::always_inline]] SumType<T> factor(int64_t k) const noexcept {
    if (job.sum.contribution_scales != nullptr) return job.sum.contribution_scales[k];
    const int64_t segment = job.sum.contributions[k].segment();
    return lies_ready() ? job.rows[segment].factor : job.sum.scales[segment];
  }
  [[gnu::always_inline]] Magnitudes<SumType<T>> magnitudes(int64_t k) const noexcept {
    const int64_t segment = job.sum.contributions[k].segment();
    if (lies_ready() && job.sum.contribution_scales == nullptr) return job.rows[segment].magnitudes;
    const auto of_row = lies_ready() ? job.rows[segment].magnitudes : MagnitudesOf<I>(row(k), width());
    return kScaled ? ProductMagnitudes<I>(row(k), width(), of_row, factor(k)) : of_row;
  }
  [[gnu::always_inline]] SumType<T> smallest(int64_t k) const noexcept {
    const SumType<T> of_row = job.rows[job.sum.contributions[k].segment()].magnitudes.smallest;
    return job.sum.contribution_scales == nullptr ? of_row : of_row * Magnitude<I>(factor(k));
  }
};

// Calls f(terms) with terms that know whether there are factors.
template <Isa I, class T, class C, class F>
[[gnu::always_inline]] inline auto WithTerms(const ReproducibleJob<T, C>& job, const F& f) noexcept {
  if (job.sum.scales != nullptr || job.sum.contribution_scales != nullptr) return f(GradTerms<I, true, T, C>{job});
  return f(GradTerms<I, false, T, C>{job});
}

// Columns of a row in the output, or null if rows go into an optimizer.
template <Isa I, class T, class C>
[[gnu::always_inline]] inline T* OutputOf(const SumJob<T, C>& job, int64_t row, int64_t column) noexcept {
  if (job.sink.optimizer != nullptr) return nullptr;
  return job.sink.output + (job.sink.dense ? job.table_row(row) : row) * job.width + column;
}

// Brings rounded columns of a row to the sink. They may lie in the output already.
template <Isa I, class T, class C>
[[gnu::always_inline]] inline void Deliver(const SumJob<T, C>& job, int64_t row, int64_t column, int64_t columns,
                                           SumType<T>* rounded, T* out) noexcept {
  if (job.sink.optimizer != nullptr) {
    constexpr int64_t kColumns = kStrip<SumType<T>>;
    for (int64_t c = 0; c < columns; c += kColumns) {
      Update<I>(job, row, column + c, columns - c < kColumns ? columns - c : kColumns, rounded + c);
    }
  } else if constexpr (kIsShortFloat<T>) {
    Store<I>(rounded, out, columns);
  }
}

// Calls round(column, columns, target) for all columns, a few at a time, and brings them to the sink.
template <Isa I, class T, class C, class F>
[[gnu::always_inline]] inline void FinishRow(const SumJob<T, C>& job, int64_t row, const F& round) noexcept {
  using A = SumType<T>;
  A buffer[kExactColumns];
  for (int64_t column = 0; column < job.width; column += kExactColumns) {
    const int64_t rest = job.width - column;
    const int64_t columns = rest < kExactColumns ? rest : kExactColumns;
    T* const out = OutputOf<I>(job, row, column);
    A* target = buffer;
    if constexpr (!kIsShortFloat<T>) {
      if (out != nullptr) target = out;
    }
    round(column, columns, target);
    Deliver<I>(job, row, column, columns, target, out);
  }
}

template <Isa I, class T, class C>
void SumRows(const ReproducibleJob<T, C>& job, int64_t row_begin, int64_t row_end) noexcept {
  WithTerms<I>(job, [&](const auto& terms) {
    for (int64_t row = row_begin; row < row_end; ++row) {
      const int64_t begin = job.sum.row_starts[row];
      const int64_t end = job.sum.row_starts[row + 1];
      const RowGrid<I, SumType<T>> grid(MagnitudesOfTerms<I>(terms, begin, end), end - begin);
      FinishRow<I>(job.sum, row, [&](int64_t column, int64_t columns, SumType<T>* target) {
        SumAndRound<I>(terms, grid, begin, end, column, columns, 1.0, target);
      });
    }
  });
}

template <Isa I, class T, class C>
SumType<T> Largest(const ReproducibleJob<T, C>& job, cpu::Span contributions) noexcept {
  return WithTerms<I>(job, [&](const auto& terms) {
    return MagnitudesOfTerms<I>(terms, contributions.begin, contributions.end).largest;
  });
}

template <Isa I, class T, class C>
void SumPart(const ReproducibleJob<T, C>& job, const SumGrid<SumType<T>>& grid, cpu::Span contributions,
             cpu::Span columns, double* sums) noexcept {
  WithTerms<I>(job, [&](const auto& terms) {
    SumColumns<I>(terms, grid, contributions.begin, contributions.end, columns.begin, columns.end, sums);
  });
}

template <Isa I, class T, class C>
void Finish(const ReproducibleJob<T, C>& job, int64_t row, const SumGrid<SumType<T>>& grid,
            const double* sums) noexcept {
  FinishRow<I>(job.sum, row, [&](int64_t column, int64_t columns, SumType<T>* target) {
    RoundRow<I>(grid, sums + column, job.sum.width, 1.0, target, columns);
  });
}

template <Isa I, class T>
void Describe(const T* rows, int64_t count, int64_t width, const SumType<T>* scales,
              SegmentRow<SumType<T>>* out) noexcept {
  for (int64_t row = 0; row < count; ++row) {
    const SumType<T> factor = scales != nullptr ? scales[row] : SumType<T>{1};
    const T* const values = rows + row * width;
    out[row] = {factor, ProductMagnitudes<I>(values, width, MagnitudesOf<I>(values, width), factor)};
  }
}

template <Isa I, class T, class C>
inline constexpr ReproducibleFunctions<T, C> kFunctions = {&SumRows<I, T, C>, &Largest<I, T, C>, &SumPart<I, T, C>,
                                                           &Finish<I, T, C>};

template <Isa I, class T>
consteval ReproducibleLoopsOf<T> LoopsOf() noexcept {
  ReproducibleLoopsOf<T> loops = {&Describe<I, T>, kFunctions<I, T, Contribution>, {}};
  if constexpr (I == kBaselineIsa) loops.wide = kFunctions<I, T, WideContribution>;
  return loops;
}

template <Isa I, class... Ts>
consteval ReproducibleLoops LoopsOf(TypeList<Ts...>) noexcept {
  return {LoopsOf<I, Ts>()...};
}

}  // namespace

template <Isa I>
const ReproducibleLoops& ReproducibleLoopsFor() noexcept {
  static constexpr ReproducibleLoops kLoops = LoopsOf<I>(FloatTypes{});
  return kLoops;
}

template const ReproducibleLoops& ReproducibleLoopsFor<RAGGRAD_TARGET_ISA>() noexcept;

}  // namespace raggrad::sparse_segment
