// GPU backend of the forwards. If entries are in row order, the k-th entry moves up by the number of empty rows before
// its own row. Otherwise they are sorted by row first. The default of an empty row follows the entries of all earlier
// rows, which a binary search counts.
#include <bit>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <type_traits>

#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_fill_empty_rows/kernels.h"

namespace raggrad::sparse_fill_empty_rows::on_cuda {
namespace {

using cuda::AllocateOutput;
using cuda::Bits;
using cuda::Blocks;
using cuda::Call;
using cuda::GlobalThread;
using cuda::UncapturedCall;

constexpr int kThreads = cuda::kTuning.item_threads_per_block;

// Checks the rows and clears the indicator of those that occur. Clears *ascending if they are not in order.
__global__ void CheckRows(const int64_t* indices, int64_t d, int64_t n, uint64_t rows, bool* empty, uint64_t* first_bad,
                          uint64_t* ascending) {
  const int64_t i = GlobalThread();
  if (i >= n) return;
  const int64_t row = indices[i * d];
  if (static_cast<uint64_t>(row) >= rows) {
    cuda::AtomicMin(first_bad, i);
    return;
  }
  const int64_t previous = i == 0 ? -1 : indices[(i - 1) * d];
  if (row != previous) empty[row] = false;
  if (row < previous) *ascending = 0;
}

// An order gives the k-th entry by row, and its row.
struct InputOrder {
  const int64_t* indices;
  int64_t d;

  __device__ int64_t Row(int64_t k) const { return indices[k * d]; }
  __device__ int64_t Entry(int64_t k) const { return k; }
};

template <class Number>
struct SortedOrder {
  const Number* rows;
  const Number* entries;

  __device__ int64_t Row(int64_t k) const { return static_cast<int64_t>(rows[k]); }
  __device__ int64_t Entry(int64_t k) const { return static_cast<int64_t>(entries[k]); }
};

template <class Number>
__global__ void NumberEntries(const int64_t* indices, int64_t d, int64_t n, Number* rows, Number* entries) {
  const int64_t i = GlobalThread();
  if (i >= n) return;
  rows[i] = static_cast<Number>(indices[i * d]);
  entries[i] = static_cast<Number>(i);
}

template <class E>
struct Data {
  const int64_t* indices;
  const E* values;
  const E* default_value;
  int64_t n, d, rows;
  const uint64_t* empties;  // [rows]: empty rows up to and including each row
  int64_t* output_indices;
  E* output_values;
  const bool* empty;
  int64_t* reverse_index_map;
};

template <class Order, class E>
__global__ void PlaceEntries(Order order, Data<E> data) {
  const int64_t k = GlobalThread();
  if (k >= data.n) return;
  const int64_t entry = order.Entry(k);
  const int64_t place = k + static_cast<int64_t>(data.empties[order.Row(k)]);
  data.reverse_index_map[entry] = place;
  data.output_values[place] = data.values[entry];
  for (int64_t c = 0; c < data.d; ++c) data.output_indices[place * data.d + c] = data.indices[entry * data.d + c];
}

template <class Order, class E>
__global__ void PlaceDefaults(Order order, Data<E> data) {
  const int64_t row = GlobalThread();
  if (row >= data.rows || !data.empty[row]) return;
  int64_t below = 0;  // entries of earlier rows
  for (int64_t count = data.n; count > 0;) {
    const int64_t half = count / 2;
    if (order.Row(below + half) < row) {
      below += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  const int64_t place = below + static_cast<int64_t>(data.empties[row]) - 1;
  data.output_values[place] = *data.default_value;
  for (int64_t c = 0; c < data.d; ++c) data.output_indices[place * data.d + c] = c == 0 ? row : 0;
}

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
                             rows.Current(), entries.Current());
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

// Findings about the rows. `empties` is that of Data, with two more words at the end.
struct RowsSeen {
  Scratch<uint64_t> empties;
  int64_t num_empty = 0;
  bool ascending = true;
};

// Checks the rows and writes the indicator. The only time that the host waits.
Result<RowsSeen> LookAtRows(const UncapturedCall& call, const ForwardProblem& problem, bool* empty) noexcept {
  const int64_t n = problem.n(), rows = problem.rows;
  if (rows == 0) return RowsSeen{};
  auto words = Scratch<uint64_t>::Make(call.device_memory(), rows + 2);
  if (!words.ok()) return words.status();
  uint64_t* const first_bad = words->data() + rows;
  uint64_t* const ascending = first_bad + 1;
  if (Status s = call.Fill(first_bad, 0xff, 2 * sizeof(uint64_t)); !s.ok()) return s;
  if (Status s = call.Fill(empty, 1, static_cast<size_t>(rows)); !s.ok()) return s;
  if (Status s = call.Launch(CheckRows, Blocks(n, kThreads), kThreads, problem.indices, problem.d, n,
                             static_cast<uint64_t>(rows), empty, first_bad, ascending);
      !s.ok()) {
    return s;
  }
  if (Status s = call.RunCub([&](void* scratch, size_t& bytes) {
        return cub::DeviceScan::InclusiveScanInit(scratch, bytes, reinterpret_cast<const uint8_t*>(empty),
                                                  words->data(), ::cuda::std::plus<>{}, uint64_t{0}, rows, call.stream);
      });
      !s.ok()) {
    return s;
  }
  uint64_t seen[3];  // the last sum and the two words after it
  if (Status s = call.ReadBack(words->data() + rows - 1, seen); !s.ok()) return s;
  if (const uint64_t bad = seen[1]; bad != ~uint64_t{0}) {
    uint64_t row = 0;
    const auto* const index =
        reinterpret_cast<const uint64_t*>(problem.indices + static_cast<int64_t>(bad) * problem.d);
    if (Status s = call.ReadBack(index, {&row, 1}); !s.ok()) return s;
    return NoSuchRow(problem, static_cast<int64_t>(bad), static_cast<int64_t>(row));
  }
  return RowsSeen{*std::move(words), static_cast<int64_t>(seen[0]), seen[2] != 0};
}

}  // namespace

Result<SparseFillEmptyRowsOutput> Forward(const ForwardProblem& problem, const Context& ctx) noexcept {
  if (problem.values.dtype == DType::kString) return cuda::NoStrings(problem.op, "values");
  const Result<UncapturedCall> call = UncapturedCall::Begin(ctx);
  if (!call.ok()) return call.status();
  auto empty_row_indicator = AllocateOutput(*call, 2, DType::kBool, Shape{problem.rows});
  if (!empty_row_indicator.ok()) return empty_row_indicator.status();
  auto reverse_index_map = AllocateOutput(*call, 3, DType::kInt64, Shape{problem.n()});
  if (!reverse_index_map.ok()) return reverse_index_map.status();
  const auto seen = LookAtRows(*call, problem, empty_row_indicator->As<bool>());
  if (!seen.ok()) return seen.status();

  const int64_t n_full = problem.n() + seen->num_empty;
  auto output_indices = AllocateOutput(*call, 0, DType::kInt64, problem.OutputIndicesShape(n_full));
  if (!output_indices.ok()) return output_indices.status();
  auto output_values = AllocateOutput(*call, 1, problem.values.dtype, Shape{n_full});
  if (!output_values.ok()) return output_values.status();
  Status status = Visit(FillTypes{}, problem.values.dtype, [&]<class T>() -> Status {
    using E = Bits<T>;
    return PlaceAll(*call, seen->ascending,
                    Data<E>{problem.indices, problem.values.As<E>(), static_cast<const E*>(problem.default_value),
                            problem.n(), problem.d, problem.rows, seen->empties.data(),
                            output_indices->template As<int64_t>(), output_values->template As<E>(),
                            empty_row_indicator->template As<bool>(), reverse_index_map->template As<int64_t>()});
  });
  if (!status.ok()) return status;
  return SparseFillEmptyRowsOutput{*std::move(output_indices), *std::move(output_values),
                                   *std::move(empty_row_indicator), *std::move(reverse_index_map)};
}

}  // namespace raggrad::sparse_fill_empty_rows::on_cuda
