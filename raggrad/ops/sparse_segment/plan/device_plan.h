// A plan in device memory. Internal to the family.
#pragma once

#include "raggrad/core/scratch.h"

namespace raggrad::sparse_segment::on_cuda {

// Contributions are summed in groups of this many (grad/sum_groups.cuh). Defines results: sparse_segment.h states it.
inline constexpr int kContributionsPerGroup = 512;
inline constexpr int64_t GroupsOf(int64_t contributions) {
  return (contributions + kContributionsPerGroup - 1) / kContributionsPerGroup;
}

// The CPU's, but aligned, so that it is loaded at once.
struct alignas(8) Contribution {
  uint32_t row;
  uint32_t segment;
};

// Whether segment ids ascend. Kernels always find out; the host knows it once it has read their report.
enum class SegmentTrend { kUnknown, kAscending, kDescending };

struct Plan {
  Scratch<Contribution> contributions;      // [n], sorted by row; those of a row are in input order
  Scratch<uint32_t> positions;              // [n]: the id that each contribution comes from; empty if not wanted
  Scratch<uint32_t> memory;                 // holds the next two arrays
  const uint32_t* unique_before = nullptr;  // [groups + 1]: unique rows that begin before each group, dropped ids too
  const uint32_t* counts = nullptr;         // ids per segment; null if not wanted
  const uint32_t* descending = nullptr;     // one word: not 0 if segment ids do not ascend
  SegmentTrend order = SegmentTrend::kUnknown;
};

}  // namespace raggrad::sparse_segment::on_cuda
