// Padding behind the rows of a gradient whose number is known on the device only.
#pragma once

#include "raggrad/core/padded_report.h"
#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/tuning.h"
#include "raggrad/ops/sparse_segment/grad/row_sink.cuh"

namespace raggrad::sparse_segment::on_cuda {

// Writes `value` to [begin, end), 16 bytes at once. By all threads of the grid.
template <class T>
__device__ void FillRange(T* begin, T* end, T value) {
  constexpr int kColumns = 16 / sizeof(T);
  const int64_t thread = cuda::GlobalThread(), threads = int64_t{gridDim.x} * blockDim.x;
  const int64_t count = end > begin ? end - begin : 0;
  const auto misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin) / sizeof(T) % kColumns);
  const int64_t head = min((kColumns - misaligned) % kColumns, count);
  const int64_t words = (count - head) / kColumns;
  Columns<T, kColumns> word;
  for (T& column : word.values) column = value;
  for (int64_t i = thread; i < words; i += threads) StoreOnce(begin + head + i * kColumns, word);
  const int64_t left = count - words * kColumns;  // before the first word and after the last
  if (thread < left) begin[thread < head ? thread : thread + words * kColumns] = value;
}

// Pads a GradV2Padded output: zeros after its rows, table_rows after its unique rows. After a fault, and with too
// little room, all values are NaN, so that nobody who does not read the report takes them for a gradient.
//
// Memory limits it: zeros that were written beside the sums, or beside the plan, took as long (docs/gpu.md).
template <class T>
__global__ void PadRowsKernel(const PaddedReport* report, T* output, int64_t width, int64_t max_unique,
                              void* unique_rows, bool unique_is_wide, int64_t table_rows) {
  const int64_t num_unique = min(static_cast<int64_t>(report->count), max_unique);
  const bool bad = report->fault != PaddedReport::kNoFault || report->count > static_cast<uint64_t>(max_unique);
  FillRange(output + (bad ? 0 : num_unique) * width, output + max_unique * width,
            cuda::Narrow<T>(bad ? SumType<T>{NAN} : SumType<T>{0}));
  if (unique_is_wide) {
    auto* const rows = static_cast<int64_t*>(unique_rows);
    FillRange(rows + num_unique, rows + max_unique, table_rows);
  } else {
    auto* const rows = static_cast<int32_t*>(unique_rows);
    FillRange(rows + num_unique, rows + max_unique, static_cast<int32_t>(table_rows));
  }
}

// Queues the kernel. Its grid fills the GPU, however much there is to pad: with a thread for each value, a gradient of
// 64 million of them took 152 us, most of it to start threads.
template <class T>
Status PadRows(const cuda::Call& call, const RowSink<T>& sink, int64_t width, int64_t table_rows,
               const PaddedReport* report) noexcept {
  constexpr int kThreads = cuda::kTuning.item_threads_per_block;
  constexpr int kBlocks = cuda::kTuning.multiprocessors * cuda::kTuning.pad_blocks_per_multiprocessor;
  if (sink.max_rows == 0) return {};
  const int64_t items = sink.max_rows * std::max<int64_t>(width, 1);
  const unsigned blocks = std::min<unsigned>(cuda::Blocks(items, kThreads), kBlocks);
  return call.Launch(PadRowsKernel<T>, blocks, kThreads, report, sink.output, width, sink.max_rows, sink.unique_rows,
                     sink.unique_is_wide, table_rows);
}

}  // namespace raggrad::sparse_segment::on_cuda
