// Padding behind the rows of an output in host memory, and the report of a call that pads.
#pragma once

#include <cstring>

#include "raggrad/core/context.h"
#include "raggrad/core/padded_report.h"
#include "raggrad/cpu/chunks.h"

namespace raggrad::cpu {

inline constexpr int64_t kPaddingGrain = 1 << 16;  // bytes that pay for a thread: some 5 us of work

// Zeroes a tensor from row `begin` on. Not for strings.
inline void ZeroRowsFrom(int64_t begin, Tensor& tensor, const Context& ctx) noexcept {
  const int64_t rows = tensor.shape()[0];
  if (begin >= rows || tensor.bytes() == 0) return;
  const int64_t used = static_cast<int64_t>(tensor.bytes()) / rows * begin;
  char* const padding = tensor.As<char>() + used;
  Executor& executor = ExecutorOf(ctx);
  ForEachChunk(
      executor, SplitEvenly(executor, static_cast<int64_t>(tensor.bytes()) - used, kPaddingGrain),
      [&](int64_t, int64_t first, int64_t end) { std::memset(padding + first, 0, static_cast<size_t>(end - first)); });
}

// Pads [max, columns...] indices from row `begin` on: `first` in column 0, zeros in the others.
template <class Idx>
void PadIndicesFrom(int64_t begin, Tensor& indices, Idx first, const Context& ctx) noexcept {
  ZeroRowsFrom(begin, indices, ctx);
  const int64_t rows = indices.shape()[0];
  const int64_t columns = indices.shape().rank() == 1 ? 1 : indices.shape()[1];
  if (columns == 0 || begin >= rows) return;
  Executor& executor = ExecutorOf(ctx);
  constexpr int64_t kGrain = kPaddingGrain / static_cast<int64_t>(sizeof(Idx));
  ForEachChunk(executor, SplitEvenly(executor, rows - begin, kGrain), [&](int64_t, int64_t chunk, int64_t end) {
    for (int64_t row = begin + chunk; row < begin + end; ++row) indices.As<Idx>()[row * columns] = first;
  });
}

// Makes output `index`, the report of a call without a fault and with room enough.
inline Result<Tensor> MakeReport(const Context& ctx, int index, PaddedForm form, int64_t count, int64_t max) noexcept {
  Result<Tensor> report = AllocateOutput(ctx, index, DType::kUInt64, Shape{kReportWords});
  if (!report.ok()) return report;
  *report->As<PaddedReport>() = {
      .count = static_cast<uint64_t>(count), .form = form, .max = static_cast<uint64_t>(max)};
  return report;
}

}  // namespace raggrad::cpu
