// The definition of SumRows, which launches the kernels. For the two files that instantiate it.
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

template <class T, bool kUpdate, int kColumns>
Status SumGroups(const Call& call, const SumJob<T>& job, unsigned groups, Accumulation accumulation) noexcept {
  const int64_t lanes_wanted = (job.width + kColumns - 1) / kColumns;
  int lane_bits = 1;  // a block needs a warp
  while (1 << lane_bits < std::min<int64_t>(lanes_wanted, kMaxLanes)) ++lane_bits;
  const unsigned threads = static_cast<unsigned>(kTiles) << lane_bits;
  // Without columns there is still one strip, which writes the unique rows.
  const int64_t strips = std::max<int64_t>((lanes_wanted + (1 << lane_bits) - 1) >> lane_bits, 1);
  const auto kernel = accumulation == Accumulation::kFast
                          ? &SumGroupsKernel<T, kColumns, kUpdate, Accumulation::kFast>
                          : &SumGroupsKernel<T, kColumns, kUpdate, Accumulation::kSequential>;
  return ForEachStrips(strips, [&](unsigned count, int64_t first) {
    return call.LaunchEarly(kernel, dim3(groups, count), threads, 0, job, lane_bits, first);
  });
}

template <class T, bool kUpdate>
Status CombineGroups(const Call& call, const SumJob<T>& job, int64_t groups) noexcept {
  const dim3 threads(kCombineColumns, kParts);
  return ForEachStrips((job.width + kCombineColumns - 1) / kCombineColumns, [&](unsigned count, int64_t first) {
    return call.LaunchEarly(&CombineGroupsKernel<T, kUpdate>, dim3(cuda::Blocks(groups, kParts), count), threads, 0,
                            job, groups, first);
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

// Calls SumGroups with 16 bytes of columns per lane if arrays are aligned; else 4 columns of 16-bit types; else one.
template <class T, bool kUpdate, int kColumns>
Status SumGroupsOf(const Call& call, const SumJob<T>& job, unsigned groups, Accumulation accumulation) noexcept {
  if constexpr (kColumns > 1) {
    constexpr int kFewer = kColumns == 8 ? 4 : 1;
    if (!IsAligned<T, kUpdate>(job, kColumns)) return SumGroupsOf<T, kUpdate, kFewer>(call, job, groups, accumulation);
  }
  return SumGroups<T, kUpdate, kColumns>(call, job, groups, accumulation);
}

}  // namespace sum_rows_internal

template <class T, bool kUpdate>
Status SumRows(const cuda::Call& call, SumJob<T> job, Accumulation accumulation) noexcept {
  using namespace sum_rows_internal;
  const int64_t groups = GroupsOf(job.n);
  const int64_t places = accumulation == Accumulation::kSequential || groups == 1 ? 0 : groups * job.width;
  Result<Scratch<SumType<T>>> carries_and_tails = Scratch<SumType<T>>::Make(call.device_memory(), 2 * places);
  if (!carries_and_tails.ok()) return carries_and_tails.status();
  job.carries = carries_and_tails->data();
  job.tails = job.carries + places;
  const Status summed = SumGroupsOf<T, kUpdate, 16 / sizeof(T)>(call, job, static_cast<unsigned>(groups), accumulation);
  if (!summed.ok() || places == 0) return summed;
  return CombineGroups<T, kUpdate>(call, job, groups);
}

}  // namespace raggrad::sparse_segment::on_cuda
