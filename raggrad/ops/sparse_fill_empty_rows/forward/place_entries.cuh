// Kernels of the forwards: they check the rows and put entries and defaults in their places. Internal to the GPU
// backend.
#pragma once

#include <cstdint>

#include "raggrad/cuda/device.cuh"

namespace raggrad::sparse_fill_empty_rows::on_cuda {

using cuda::GlobalThread;

// Checks the rows and clears the indicator of those that occur. Clears *ascending if they are not in order.
static __global__ void CheckRows(const int64_t* indices, int64_t d, int64_t n, uint64_t rows, bool* empty,
                                 uint64_t* first_bad, uint64_t* ascending) {
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

// A row that does not exist counts as 0: a padded call goes on, so that nothing may be read or written out of bounds.
template <class Number>
__global__ void NumberEntries(const int64_t* indices, int64_t d, int64_t n, uint64_t rows_there, Number* rows,
                              Number* entries) {
  const int64_t i = GlobalThread();
  if (i >= n) return;
  const auto row = static_cast<uint64_t>(indices[i * d]);
  rows[i] = row < rows_there ? static_cast<Number>(row) : 0;
  entries[i] = static_cast<Number>(i);
}

template <class E>
struct Data {
  const int64_t* indices;
  const E* values;
  const E* default_value;
  int64_t n, d, rows;
  int64_t room;             // entries that the output has room for
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
  if (place >= data.room) return;
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
  if (place >= data.room) return;
  data.output_values[place] = *data.default_value;
  for (int64_t c = 0; c < data.d; ++c) data.output_indices[place * data.d + c] = c == 0 ? row : 0;
}

}  // namespace raggrad::sparse_fill_empty_rows::on_cuda
