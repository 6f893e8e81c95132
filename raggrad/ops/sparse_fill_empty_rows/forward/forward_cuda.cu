// GPU backend of the forwards. If entries are in row order, the k-th entry moves up by the number of empty rows before
// its own row. Otherwise they are sorted by row first. The default of an empty row follows the entries of all earlier
// rows, which a binary search counts.
#include <bit>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <type_traits>

#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/pad_entries.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_fill_empty_rows/forward/place_entries.cuh"
#include "raggrad/ops/sparse_fill_empty_rows/kernels.h"

namespace raggrad::sparse_fill_empty_rows::on_cuda {
namespace {

using cuda::AllocateOutput;
using cuda::Bits;
using cuda::Blocks;
using cuda::Call;
using cuda::UncapturedCall;

constexpr int kThreads = cuda::kTuning.item_threads_per_block;

template <class Order, class E>
Status Place(const Call& call, Order order, const Data<E>& data) noexcept {
  if (Status s = call.Launch(PlaceEntries<Order, E>, Blocks(data.n, kThreads), kThreads, order, data); !s.ok()) {
    return s;
  }
  return call.Launch(PlaceDefaults<Order, E>, Blocks(data.rows, kThreads), kThreads, order, data);
}

// `Number` is the type of row and entry numbers.
template <class Number, class E>
Status SortAndPlace(const Call& call, const Data<E>& data) noexcept {
  const int64_t n = data.n;
  auto numbers = Scratch<Number>::Make(call.device_memory(), 4 * n);
  if (!numbers.ok()) return numbers.status();
  Number* const memory = numbers->data();
  cub::DoubleBuffer<Number> rows(memory, memory + n), entries(memory + 2 * n, memory + 3 * n);
  if (Status s = call.Launch(NumberEntries<Number>, Blocks(n, kThreads), kThreads, data.indices, data.d, n,
                             static_cast<uint64_t>(data.rows), rows.Current(), entries.Current());
      !s.ok()) {
    return s;
  }
  const int bits = std::bit_width(static_cast<uint64_t>(data.rows - 1));
  if (Status s = call.RunCub([&](void* scratch, size_t& bytes) {
        return cub::DeviceRadixSort::SortPairs(scratch, bytes, rows, entries, n, 0, bits, call.stream);
      });
      !s.ok()) {
    return s;
  }
  return Place(call, SortedOrder<Number>{rows.Current(), entries.Current()}, data);
}

template <class E>
Status PlaceAll(const Call& call, bool ascending, const Data<E>& data) noexcept {
  if (ascending) return Place(call, InputOrder{data.indices, data.d}, data);
  constexpr int64_t kNarrow = int64_t{1} << 32;
  if (data.n <= kNarrow && data.rows <= kNarrow) return SortAndPlace<uint32_t>(call, data);
  return SortAndPlace<uint64_t>(call, data);
}

// Words in device memory for findings about the rows.
class RowsSeen {
 public:
  // Queues the check of the rows, which also writes the indicator. There must be rows.
  static Result<RowsSeen> Queue(const Call& call, const ForwardProblem& problem, bool* empty) noexcept {
    const int64_t n = problem.n(), rows = problem.rows;
    auto words = Scratch<uint64_t>::Make(call.device_memory(), rows + 2);
    if (!words.ok()) return words.status();
    RowsSeen seen(*std::move(words), rows);
    if (Status s = call.Fill(seen.first_bad(), 0xff, 2 * sizeof(uint64_t)); !s.ok()) return s;
    if (Status s = call.Fill(empty, 1, static_cast<size_t>(rows)); !s.ok()) return s;
    if (Status s = call.Launch(CheckRows, Blocks(n, kThreads), kThreads, problem.indices, problem.d, n,
                               static_cast<uint64_t>(rows), empty, seen.first_bad(), seen.first_bad() + 1);
        !s.ok()) {
      return s;
    }
    const Status summed = call.RunCub([&](void* scratch, size_t& bytes) {
      return cub::DeviceScan::InclusiveScanInit(scratch, bytes, reinterpret_cast<const uint8_t*>(empty),
                                                seen.words_.data(), ::cuda::std::plus<>{}, uint64_t{0}, rows,
                                                call.stream);
    });
    if (!summed.ok()) return summed;
    return Result<RowsSeen>(std::move(seen));
  }

  RowsSeen() = default;

  const uint64_t* empties() const noexcept { return words_.data(); }  // that of Data
  // The last of the empties, then the position of the first bad entry or kNoFault, then 0 if rows do not ascend.
  const uint64_t* num_empty() const noexcept { return words_.data() + rows_ - 1; }

 private:
  RowsSeen(Scratch<uint64_t> words, int64_t rows) noexcept : words_(std::move(words)), rows_(rows) {}
  uint64_t* first_bad() noexcept { return words_.data() + rows_; }

  Scratch<uint64_t> words_;
  int64_t rows_ = 0;
};

// The findings on the host.
struct RowsRead {
  int64_t num_empty = 0;
  bool ascending = true;
};

// The only time that the host waits.
Result<RowsRead> Read(const UncapturedCall& call, const ForwardProblem& problem, const RowsSeen& seen) noexcept {
  uint64_t words[3];
  if (Status s = call.ReadBack(seen.num_empty(), words); !s.ok()) return s;
  const auto [num_empty, bad, ascending] = words;
  if (bad != PaddedReport::kNoFault) {
    uint64_t row = 0;
    const auto* const index =
        reinterpret_cast<const uint64_t*>(problem.indices + static_cast<int64_t>(bad) * problem.d);
    if (Status s = call.ReadBack(index, {&row, 1}); !s.ok()) return s;
    return NoSuchRow(problem, static_cast<int64_t>(bad), static_cast<int64_t>(row));
  }
  return RowsRead{static_cast<int64_t>(num_empty), ascending != 0};
}

// The outputs whose sizes do not depend on the data come first: they are needed to learn the others.
Result<SparseFillEmptyRowsOutput> AllocateEarly(const Call& call, const ForwardProblem& problem) noexcept {
  auto empty_row_indicator = AllocateOutput(call, 2, DType::kBool, Shape{problem.rows});
  if (!empty_row_indicator.ok()) return empty_row_indicator.status();
  auto reverse_index_map = AllocateOutput(call, 3, DType::kInt64, Shape{problem.n()});
  if (!reverse_index_map.ok()) return reverse_index_map.status();
  return SparseFillEmptyRowsOutput{{}, {}, *std::move(empty_row_indicator), *std::move(reverse_index_map)};
}

Status AllocateEntries(const Call& call, const ForwardProblem& problem, Shape indices,
                       SparseFillEmptyRowsOutput& output) noexcept {
  const int64_t room = indices[0];
  auto output_indices = AllocateOutput(call, 0, DType::kInt64, std::move(indices));
  if (!output_indices.ok()) return output_indices.status();
  auto output_values = AllocateOutput(call, 1, problem.values.dtype, Shape{room});
  if (!output_values.ok()) return output_values.status();
  output.output_indices = *std::move(output_indices);
  output.output_values = *std::move(output_values);
  return {};
}

template <class E>
Data<E> DataOf(const ForwardProblem& problem, const RowsSeen& seen, SparseFillEmptyRowsOutput& output) noexcept {
  return {.indices = problem.indices,
          .values = problem.values.As<E>(),
          .default_value = static_cast<const E*>(problem.default_value),
          .n = problem.n(),
          .d = problem.d,
          .rows = problem.rows,
          .room = output.output_values.shape()[0],
          .empties = seen.empties(),
          .output_indices = output.output_indices.As<int64_t>(),
          .output_values = output.output_values.As<E>(),
          .empty = output.empty_row_indicator.As<bool>(),
          .reverse_index_map = output.reverse_index_map.As<int64_t>()};
}

struct FindReport {
  const uint64_t* num_empty;  // and the first bad entry behind it; null: there are no rows
  const int64_t* indices;
  int64_t n, d, rows;

  __device__ PaddedReport operator()() const {
    PaddedReport report;
    if (num_empty == nullptr) return report;
    report.count = static_cast<uint64_t>(n) + num_empty[0];
    report.fault = num_empty[1];
    if (report.fault == PaddedReport::kNoFault) return report;
    report.value = indices[static_cast<int64_t>(report.fault) * d];
    report.limit = static_cast<uint64_t>(rows);
    return report;
  }
};

}  // namespace

Result<SparseFillEmptyRowsOutput> Forward(const ForwardProblem& problem, const Context& ctx) noexcept {
  if (problem.values.dtype == DType::kString) return cuda::NoStrings(problem.op, "values");
  const Result<UncapturedCall> call = UncapturedCall::Begin(ctx);
  if (!call.ok()) return call.status();
  auto output = AllocateEarly(*call, problem);
  if (!output.ok()) return output;
  if (problem.rows == 0) {
    if (Status s = AllocateEntries(*call, problem, problem.OutputIndicesShape(0), *output); !s.ok()) return s;
    return output;
  }
  const auto seen = RowsSeen::Queue(*call, problem, output->empty_row_indicator.As<bool>());
  if (!seen.ok()) return seen.status();
  const auto read = Read(*call, problem, *seen);
  if (!read.ok()) return read.status();
  const Shape shape = problem.OutputIndicesShape(problem.n() + read->num_empty);
  if (Status s = AllocateEntries(*call, problem, shape, *output); !s.ok()) return s;
  const Status placed = Visit(FillTypes{}, problem.values.dtype, [&]<class T>() -> Status {
    return PlaceAll(*call, read->ascending, DataOf<Bits<T>>(problem, *seen, *output));
  });
  if (!placed.ok()) return placed;
  return output;
}

// The order of the rows is not known, so they are always sorted.
Result<SparseFillEmptyRowsPaddedOutput> ForwardPadded(const ForwardProblem& problem, int64_t max_full,
                                                      const Context& ctx) noexcept {
  if (problem.values.dtype == DType::kString) return cuda::NoStrings(problem.op, "values");
  const Result<Call> call = Call::Begin(ctx);
  if (!call.ok()) return call.status();
  auto output = AllocateEarly(*call, problem);
  if (!output.ok()) return output.status();
  if (Status s = AllocateEntries(*call, problem, problem.PaddedIndicesShape(max_full), *output); !s.ok()) return s;
  auto report = AllocateOutput(*call, 4, DType::kUInt64, Shape{kReportWords});
  if (!report.ok()) return report.status();
  Result<RowsSeen> seen = RowsSeen();
  if (problem.rows > 0) seen = RowsSeen::Queue(*call, problem, output->empty_row_indicator.As<bool>());
  if (!seen.ok()) return seen.status();
  const FindReport find = {problem.rows > 0 ? seen->num_empty() : nullptr, problem.indices, problem.n(), problem.d,
                           problem.rows};
  const cuda::PaddedEntries entries = {.indices = output->output_indices.As<int64_t>(),
                                       .values = output->output_values.data(),
                                       .max = max_full,
                                       .d = problem.d,
                                       .padding = problem.rows,
                                       .form = problem.padded_form(),
                                       .report = report->As<PaddedReport>()};
  const Status placed = Visit(FillTypes{}, problem.values.dtype, [&]<class T>() -> Status {
    if (problem.rows > 0) {
      const Status s = PlaceAll(*call, /*ascending=*/false, DataOf<Bits<T>>(problem, *seen, *output));
      if (!s.ok()) return s;
    }
    return cuda::QueuePadding<Bits<T>>(*call, find, entries);
  });
  if (!placed.ok()) return placed;
  auto& [indices, values, empty_row_indicator, reverse_index_map] = *output;
  return SparseFillEmptyRowsPaddedOutput{std::move(indices), std::move(values), std::move(empty_row_indicator),
                                         std::move(reverse_index_map), *std::move(report)};
}

}  // namespace raggrad::sparse_fill_empty_rows::on_cuda
