// CPU backend of the forwards.
//
// Walking over the entries by row, and over the rows, takes n + rows steps: a step opens the next row, or takes the
// next entry of the open row. A row without an entry gets the default. The walk is cut into sections of equally many
// steps, so that neither long rows nor long gaps fall to one worker. Binary searches in the rows find the cuts. The
// number of rows with entries before a section tells where its output begins.
#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "raggrad/core/error_text.h"
#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/first_error.h"
#include "raggrad/cpu/padding.h"
#include "raggrad/cpu/strings.h"
#include "raggrad/ops/sparse_fill_empty_rows/forward/place_block.h"
#include "raggrad/ops/sparse_fill_empty_rows/forward/row_order.h"
#include "raggrad/ops/sparse_fill_empty_rows/kernels.h"

namespace raggrad::sparse_fill_empty_rows::on_cpu {
namespace {

using cpu::CheckStrings;
using cpu::Chunks;
using cpu::CopyStrings;
using cpu::FirstError;
using cpu::ForEachChunk;
using cpu::SplitEvenly;

constexpr int64_t kGrain = 8192;  // steps that pay for a thread: some 20 us of work
constexpr int64_t kSectionsPerWorker = 4;

// Where a section of the walk begins.
struct Section {
  int64_t entry;  // entries before this one belong to earlier sections
  int64_t row;    // rows below this one belong to earlier sections
  int64_t named;  // rows whose first entry is in this section; after SumNamed(), in earlier sections
};

// Where the walk stands after `step` steps, if the order is sorted; any place if it is not.
template <class Order>
Section SectionAt(const Order& order, int64_t n, int64_t rows, int64_t step) noexcept {
  int64_t entry = 0;
  for (int64_t count = n; count > 0;) {
    const int64_t half = count / 2;
    if (entry + half + std::clamp<int64_t>(order.Row(entry + half), 0, rows) < step) {
      entry += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  const int64_t opened = entry == 0 ? 0 : std::clamp<int64_t>(order.Row(entry - 1), 0, rows - 1) + 1;
  return {entry, std::max(step - entry, opened), 0};
}

// The sections of the walk, and one more that marks the end.
class Sections {
 public:
  template <class Order>
  static Result<Sections> Make(const ForwardProblem& problem, const Order& order, const Context& ctx) noexcept {
    const int64_t n = problem.n();
    const Chunks steps = SplitEvenly(ExecutorOf(ctx), n + problem.rows, kGrain, kSectionsPerWorker);
    auto sections = Scratch<Section>::Make(ctx, steps.count + 1);
    if (!sections.ok()) return sections.status();
    (*sections)[0] = {0, 0, 0};
    for (int64_t p = 1; p < steps.count; ++p) {
      (*sections)[p] = SectionAt(order, n, problem.rows, steps.begin(p));
      // Each entry is in one section, also of an order that is not sorted: CountRows() checks them all.
      (*sections)[p].entry = std::max((*sections)[p].entry, (*sections)[p - 1].entry);
    }
    (*sections)[steps.count] = {n, problem.rows, 0};
    return Sections(*std::move(sections), steps.count);
  }

  Section& operator[](int64_t p) noexcept { return sections_[p]; }
  const Section& operator[](int64_t p) const noexcept { return sections_[p]; }

  // Calls body(p, begin, end) for each section.
  template <class F>
  void ForEach(Executor& executor, const F& body) const noexcept {
    ForEachChunk(executor, Chunks{count_, count_},
                 [&](int64_t p, int64_t, int64_t) { body(p, sections_[p], sections_[p + 1]); });
  }

  // Replaces each section's number of named rows by the number before it. Returns the total.
  int64_t SumNamed() noexcept {
    int64_t sum = 0;
    for (int64_t p = 0; p < count_; ++p) sum += std::exchange(sections_[p].named, sum);
    return sum;
  }

 private:
  Sections(Scratch<Section> sections, int64_t count) noexcept : sections_(std::move(sections)), count_(count) {}

  Scratch<Section> sections_;
  int64_t count_;
};

// Checks all rows and counts those that occur. Returns false if they do not ascend; then the sections and the counts
// mean nothing.
template <class Order>
Result<bool> CountRows(const ForwardProblem& problem, const Order& order, Sections& sections,
                       Executor& executor) noexcept {
  FirstError out_of_range;
  std::atomic<bool> sorted = true;
  sections.ForEach(executor, [&](int64_t p, const Section& begin, const Section& end) {
    int64_t previous = begin.entry == 0 ? -1 : order.Row(begin.entry - 1);
    int64_t named = 0;
    bool ascending = true;
    for (int64_t k = begin.entry; k < end.entry; ++k) {
      const int64_t row = order.Row(k);
      if (static_cast<uint64_t>(row) >= static_cast<uint64_t>(problem.rows)) return out_of_range.Report(k);
      named += row != previous ? 1 : 0;
      ascending &= row >= previous;
      previous = row;
    }
    sections[p].named = named;
    if (!ascending) sorted.store(false, std::memory_order_relaxed);
  });
  if (!out_of_range.found()) return sorted.load(std::memory_order_relaxed);
  return NoSuchRow(problem, out_of_range.position(), order.Row(out_of_range.position()));
}

struct Destination {
  int64_t* indices;
  void* values;
  bool* empty;
  int64_t* reverse_index_map;
};

template <class Order>
void WriteSection(const ForwardProblem& problem, const Order& order, const Section& begin, const Section& end,
                  PlaceValuesFunction place_values, const Destination& out) noexcept {
  const PlaceIndicesFunction place_indices = ChoosePlaceIndices(problem.d);
  Block block;
  const auto flush = [&] {
    place_values(block, problem.values.data, problem.default_value, out.values);
    place_indices(block, problem.indices, problem.d, out.indices);
    block.num_moves = block.num_gaps = 0;
  };
  int64_t place = begin.entry + begin.row - begin.named;
  int64_t row = begin.row;
  const auto open_empty_rows = [&](int64_t stop) {
    for (; row < stop; ++row) {
      out.empty[row] = true;
      block.gaps[block.num_gaps++] = {row, place++};
      if (block.num_gaps == Block::kSize) flush();
    }
  };
  for (int64_t k = begin.entry; k < end.entry; ++k) {
    const int64_t entry_row = order.Row(k);
    if (entry_row >= row) {
      open_empty_rows(entry_row);
      out.empty[row++] = false;
    }
    const int64_t entry = order.Entry(k);
    out.reverse_index_map[entry] = place;
    block.moves[block.num_moves++] = {entry, place++};
    if (block.num_moves == Block::kSize) flush();
  }
  open_empty_rows(end.row);
  flush();
}

// The outputs, and what is known before the entries are written.
struct Filled {
  SparseFillEmptyRowsOutput tensors;
  std::optional<int64_t> max_full;  // room for so many entries; unset: for exactly n_full
  int64_t n_full = 0;
};

// `sections` are those of `order`, which is sorted.
template <class Order>
Result<Filled> Write(const ForwardProblem& problem, const Order& order, Sections& sections, Filled filled,
                     const Context& ctx) noexcept {
  const int64_t n_full = problem.n() + problem.rows - sections.SumNamed();
  const int64_t room = filled.max_full.value_or(n_full);
  if (n_full > room) return TooMany(problem.op, "entries", "max_full", room, n_full);
  auto output_indices = AllocateOutput(
      ctx, 0, DType::kInt64, filled.max_full ? problem.PaddedIndicesShape(room) : problem.OutputIndicesShape(room));
  if (!output_indices.ok()) return output_indices.status();
  const auto write_with = [&](PlaceValuesFunction place_values, void* output_values) {
    const Destination out{output_indices->As<int64_t>(), output_values, filled.tensors.empty_row_indicator.As<bool>(),
                          filled.tensors.reverse_index_map.As<int64_t>()};
    sections.ForEach(ExecutorOf(ctx), [&](int64_t, const Section& begin, const Section& end) {
      WriteSection(problem, order, begin, end, place_values, out);
    });
  };
  auto output_values = Visit(FillTypes{}, problem.values.dtype, [&]<class T>() -> Result<Tensor> {
    if constexpr (std::is_same_v<T, String>) {
      auto placed = Scratch<String>::Make(ctx, room);
      if (!placed.ok()) return placed.status();
      write_with(PlaceValues<sizeof(String)>, placed->data());
      std::fill_n(placed->data() + n_full, room - n_full, String{});
      return CopyStrings(ctx, 1, Shape{room}, {placed->data(), static_cast<size_t>(room)});
    } else {
      auto values = AllocateOutput(ctx, 1, kDTypeOf<T>, Shape{room});
      if (!values.ok()) return values;
      write_with(PlaceValues<sizeof(T)>, values->data());
      cpu::ZeroRowsFrom(n_full, *values, ctx);
      return values;
    }
  });
  if (!output_values.ok()) return output_values.status();
  cpu::PadIndicesFrom(n_full, *output_indices, problem.rows, ctx);
  filled.tensors.output_indices = *std::move(output_indices);
  filled.tensors.output_values = *std::move(output_values);
  filled.n_full = n_full;
  return filled;
}

template <class Number>
Result<Filled> SortAndWrite(const ForwardProblem& problem, Filled filled, const Context& ctx) noexcept {
  const auto order = SortedOrder<Number>::Make(problem, ctx);
  if (!order.ok()) return order.status();
  auto sections = Sections::Make(problem, *order, ctx);
  if (!sections.ok()) return sections.status();
  if (const Result<bool> sorted = CountRows(problem, *order, *sections, ExecutorOf(ctx)); !sorted.ok()) {
    return sorted.status();
  }
  return Write(problem, *order, *sections, std::move(filled), ctx);
}

Status CheckValues(const ForwardProblem& problem, Executor& executor) noexcept {
  if (problem.values.dtype != DType::kString) return {};
  const std::span values(problem.values.As<String>(), static_cast<size_t>(problem.n()));
  if (Status s = CheckStrings(problem.op, "values", values, executor); !s.ok()) return s;
  return CheckStrings(problem.op, "default_value", {static_cast<const String*>(problem.default_value), 1}, executor);
}

Result<Filled> Fill(const ForwardProblem& problem, std::optional<int64_t> max_full, const Context& ctx) noexcept {
  // Allocated first, and written only when all other memory is there: the number of rows may be anything.
  auto indicator = AllocateOutput(ctx, 2, DType::kBool, Shape{problem.rows});
  if (!indicator.ok()) return indicator.status();
  auto map = AllocateOutput(ctx, 3, DType::kInt64, Shape{problem.n()});
  if (!map.ok()) return map.status();
  if (Status s = CheckValues(problem, ExecutorOf(ctx)); !s.ok()) return s;

  const InputOrder input(problem);
  auto sections = Sections::Make(problem, input, ctx);
  if (!sections.ok()) return sections.status();
  const Result<bool> sorted = CountRows(problem, input, *sections, ExecutorOf(ctx));
  if (!sorted.ok()) return sorted.status();
  Filled filled{{{}, {}, *std::move(indicator), *std::move(map)}, max_full};
  if (*sorted) return Write(problem, input, *sections, std::move(filled), ctx);
  constexpr int64_t kNarrow = int64_t{1} << 32;
  if (problem.n() <= kNarrow && problem.rows <= kNarrow) return SortAndWrite<uint32_t>(problem, std::move(filled), ctx);
  return SortAndWrite<uint64_t>(problem, std::move(filled), ctx);
}

}  // namespace

Result<SparseFillEmptyRowsOutput> Forward(const ForwardProblem& problem, const Context& ctx) noexcept {
  Result<Filled> filled = Fill(problem, /*max_full=*/{}, ctx);
  if (!filled.ok()) return filled.status();
  return std::move(filled->tensors);
}

Result<SparseFillEmptyRowsPaddedOutput> ForwardPadded(const ForwardProblem& problem, int64_t max_full,
                                                      const Context& ctx) noexcept {
  Result<Filled> filled = Fill(problem, max_full, ctx);
  if (!filled.ok()) return filled.status();
  Result<Tensor> report = cpu::MakeReport(ctx, 4, problem.padded_form(), filled->n_full, max_full);
  if (!report.ok()) return report.status();
  auto& [indices, values, empty_row_indicator, reverse_index_map] = filled->tensors;
  return SparseFillEmptyRowsPaddedOutput{std::move(indices), std::move(values), std::move(empty_row_indicator),
                                         std::move(reverse_index_map), *std::move(report)};
}

}  // namespace raggrad::sparse_fill_empty_rows::on_cpu
