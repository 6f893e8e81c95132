// The definitions of SumRows and SumRowsReproducibly, which launch the kernels. For the files that instantiate them.
#pragma once

#include "raggrad/ops/sparse_segment/grad/combine_groups.cuh"

namespace raggrad::sparse_segment::on_cuda {

namespace sum_rows_internal {

using cuda::Call;

// Calls f(number of strips, first strip) in batches that fit CUDA's grid limit.
template <class F>
Status ForEachStrips(int64_t strips, const F& f) noexcept {
  for (int64_t first = 0; first < strips; first += cuda::kMaxGridY) {
    if (Status s = f(static_cast<unsigned>(std::min(strips - first, cuda::kMaxGridY)), first); !s.ok()) return s;
  }
  return {};
}

template <class T>
using SumGroupsFunction = void (*)(SumJob<T> job, int lane_bits, int64_t first_strip);

template <class T, int kColumns>
Status LaunchSumGroups(const Call& call, const SumJob<T>& job, SumGroupsFunction<T> kernel) noexcept {
  const int64_t lanes_wanted = (job.width + kColumns - 1) / kColumns;
  int lane_bits = 1;  // a block needs a warp
  while (1 << lane_bits < std::min<int64_t>(lanes_wanted, kMaxLanes<T>)) ++lane_bits;
  const unsigned threads = static_cast<unsigned>(kTiles) << lane_bits;
  // Without columns there is still one strip, which writes the unique rows.
  const int64_t strips = std::max<int64_t>((lanes_wanted + (1 << lane_bits) - 1) >> lane_bits, 1);
  const auto groups = static_cast<unsigned>(GroupsOf(job.n));
  return ForEachStrips(strips, [&](unsigned count, int64_t first) {
    return call.LaunchEarly(kernel, dim3(groups, count), threads, 0, job, lane_bits, first);
  });
}

template <class T, bool kUpdate, class Sums>
Status CombineGroups(const Call& call, const SumJob<T>& job) noexcept {
  const int64_t groups = GroupsOf(job.n);
  const dim3 threads(kCombineColumns, kParts);
  return ForEachStrips((job.width + kCombineColumns - 1) / kCombineColumns, [&](unsigned count, int64_t first) {
    return call.LaunchEarly(&CombineGroupsKernel<T, kUpdate, Sums>, dim3(cuda::Blocks(groups, kParts), count), threads,
                            0, job, groups, first);
  });
}

// Whether every array is aligned so that a lane can load and store that many columns at once.
template <class T, bool kUpdate>
bool IsAligned(const SumJob<T>& job, int columns) noexcept {
  const auto aligned = [&](const void* array, size_t element) {
    return reinterpret_cast<uintptr_t>(array) % (static_cast<size_t>(columns) * element) == 0;
  };
  if (job.width % columns != 0 || !aligned(job.grad, sizeof(T))) return false;
  if (!kUpdate) return aligned(job.sink.output, sizeof(T));
  const OptimizerJob<SumType<T>>& update = job.sink.update;
  return aligned(update.table, DTypeSize(job.sink.table_type)) && aligned(update.state1, sizeof(SumType<T>)) &&
         aligned(update.state2, sizeof(SumType<T>));
}

// Calls f<kColumns>() with 16 bytes of columns per lane if arrays are aligned; else 4 columns of 16-bit types; else
// one.
template <class T, bool kUpdate, int kColumns, class F>
Status WithColumns(const SumJob<T>& job, const F& f) noexcept {
  if constexpr (kColumns > 1) {
    constexpr int kFewer = kColumns == 8 ? 4 : 1;
    if (!IsAligned<T, kUpdate>(job, kColumns)) return WithColumns<T, kUpdate, kFewer>(job, f);
  }
  return f.template operator()<kColumns>();
}

}  // namespace sum_rows_internal

template <class T, bool kUpdate>
Status SumRows(const cuda::Call& call, const SumJob<T>& job, Accumulation accumulation) noexcept {
  using namespace sum_rows_internal;
  const bool fast = accumulation == Accumulation::kFast;
  const Status summed = WithColumns<T, kUpdate, 16 / sizeof(T)>(job, [&]<int kColumns>() {
    return LaunchSumGroups<T, kColumns>(call, job,
                                        fast ? &SumGroupsKernel<T, kColumns, kUpdate, Accumulation::kFast>
                                             : &SumGroupsKernel<T, kColumns, kUpdate, Accumulation::kSequential>);
  });
  if (!summed.ok() || job.carries == nullptr) return summed;
  return CombineGroups<T, kUpdate, RoundedSums<T, 1>>(call, job);
}

template <class T, bool kUpdate>
Status SumRowsReproducibly(const cuda::Call& call, const SumJob<T>& job) noexcept {
  using namespace sum_rows_internal;
  constexpr int kColumns = sizeof(T) == 2 ? 4 : 16 / sizeof(T);  // of 8 columns the sums alone would be 16 registers
  const Status summed = WithColumns<T, kUpdate, kColumns>(job, [&]<int kFitting>() {
    return LaunchSumGroups<T, kFitting>(call, job, &SumGroupsKernel<T, kFitting, kUpdate, Accumulation::kReproducible>);
  });
  if (!summed.ok() || job.carries == nullptr) return summed;
  return CombineGroups<T, kUpdate, ExactSums<T, 1>>(call, job);
}

}  // namespace raggrad::sparse_segment::on_cuda
