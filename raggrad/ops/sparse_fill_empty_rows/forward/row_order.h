// Orders of a sparse tensor's entries: that of the input, and sorted by row. Internal to the CPU backend.
#pragma once

#include <bit>
#include <cstdint>

#include "raggrad/core/scratch.h"
#include "raggrad/cpu/chunks.h"
#include "raggrad/cpu/radix_sort.h"
#include "raggrad/ops/sparse_fill_empty_rows/kernels.h"

namespace raggrad::sparse_fill_empty_rows::on_cpu {

// An order says which entry comes k-th, and its row.
class InputOrder {
 public:
  explicit InputOrder(const ForwardProblem& problem) noexcept : indices_(problem.indices), d_(problem.d) {}
  int64_t Row(int64_t k) const noexcept { return indices_[k * d_]; }
  static int64_t Entry(int64_t k) noexcept { return k; }

 private:
  const int64_t* indices_;
  int64_t d_;
};

// Entries by row, and within a row as they came. Number is uint32_t if entries and rows fit it, else uint64_t.
template <class Number>
class SortedOrder {
 public:
  // The rows must be in [0, problem.rows). Scratch: two records per entry, and the sort's counters.
  static Result<SortedOrder> Make(const ForwardProblem& problem, const Context& ctx) noexcept {
    const int64_t n = problem.n();
    auto records = Scratch<Record>::Make(ctx, n);
    if (!records.ok()) return records.status();
    auto spare = Scratch<Record>::Make(ctx, n);
    if (!spare.ok()) return spare.status();
    Record* const packed = records->data();
    const InputOrder input(problem);
    Executor& executor = ExecutorOf(ctx);
    ForEachChunk(executor, cpu::SplitEvenly(executor, n, kPackGrain), [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        packed[i] = {static_cast<Number>(input.Row(i)), static_cast<Number>(i)};
      }
    });
    const Result<Record*> sorted = Sort(ctx, {packed, spare->data()}, n, static_cast<uint64_t>(problem.rows - 1));
    if (!sorted.ok()) return sorted.status();
    return SortedOrder(*std::move(*sorted == packed ? records : spare));
  }

  int64_t Row(int64_t k) const noexcept { return static_cast<int64_t>(sorted_[k].row); }
  int64_t Entry(int64_t k) const noexcept { return static_cast<int64_t>(sorted_[k].entry); }

 private:
  struct Record {
    Number row;
    Number entry;
  };
  static constexpr int64_t kPackGrain = 16384;

  explicit SortedOrder(Scratch<Record> sorted) noexcept : sorted_(std::move(sorted)) {}

  // Sorts by the low 32 bits first, then by the high ones: the sort is stable and takes 32 bits at a time.
  static Result<Record*> Sort(const Context& ctx, cpu::SortBuffers<Record> records, int64_t n, uint64_t last) noexcept {
    using cpu::RadixSort;
    const auto low = [](const Record& record) { return static_cast<uint32_t>(record.row); };
    const int bits = static_cast<int>(std::bit_width(last));
    Result<Record*> sorted = RadixSort(ctx, records, n, std::min(bits, 32), low);
    if (sizeof(Number) == sizeof(uint32_t) || bits <= 32 || !sorted.ok()) return sorted;
    const auto high = [](const Record& record) { return static_cast<uint32_t>(uint64_t{record.row} >> 32); };
    if (*sorted == records.spare) records.Swap();
    return RadixSort(ctx, records, n, bits - 32, high);
  }

  Scratch<Record> sorted_;
};

}  // namespace raggrad::sparse_fill_empty_rows::on_cpu
