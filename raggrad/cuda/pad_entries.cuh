// Padding behind entries of unknown number, and the report of a padded call. Shared by the families of sparse tensors.
#pragma once

#include "raggrad/core/padded_report.h"
#include "raggrad/cuda/call.cuh"
#include "raggrad/cuda/device.cuh"
#include "raggrad/cuda/tuning.h"

namespace raggrad::cuda {

// Outputs of a padded call, in device memory.
struct PaddedEntries {
  int64_t* indices;  // [max, d]
  void* values;      // [max]
  int64_t max;
  int64_t d;
  int64_t padding;  // in column 0 of the indices
  PaddedForm form;
  PaddedReport* report;
};

// Writes the report and pads the places behind the entries. find() returns the report without form and max; it reads
// what earlier kernels have found. One thread for each place.
template <class E, class Find>
__global__ void PadEntriesKernel(const Find find, const PaddedEntries entries) {
  const int64_t i = GlobalThread();
  PaddedReport found = find();
  if (i == 0) {
    found.form = entries.form;
    found.max = static_cast<uint64_t>(entries.max);
    *entries.report = found;
  }
  if (static_cast<uint64_t>(i) < found.count || i >= entries.max) return;
  static_cast<E*>(entries.values)[i] = E{};
  for (int64_t c = 0; c < entries.d; ++c) entries.indices[i * entries.d + c] = c == 0 ? entries.padding : 0;
}

// E: bits of the size of a value.
template <class E, class Find>
Status QueuePadding(const Call& call, const Find& find, const PaddedEntries& entries) noexcept {
  constexpr int kThreads = kTuning.item_threads_per_block;
  return call.Launch(PadEntriesKernel<E, Find>, Blocks(entries.max, kThreads), kThreads, find, entries);
}

}  // namespace raggrad::cuda
