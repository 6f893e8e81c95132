// What a plan is in device memory. Internal to the family.
#pragma once

#include "raggrad/core/scratch.h"
#include "raggrad/ops/sparse_segment/kernels.h"

namespace raggrad::sparse_segment::cuda {

// Contributions are summed in groups of this many (row_sums.cuh).
inline constexpr int kGroup = 512;

struct Plan {
  Scratch<uint32_t> rows;            // [n]: of the table, ascending; one for each contribution
  Scratch<uint32_t> segments;        // [n]: that the contribution comes from; equal rows are in the order of the input
  Scratch<uint32_t> rows_before;     // [groups + 1]: how many rows begin before each group
  Scratch<uint32_t> notes;           // what is found out about the ids on the way
  const uint32_t* counts = nullptr;  // in `notes`, ids per segment; null if it was not asked for
  int64_t num_rows = 0;              // unique rows, once it has been read back
};

}  // namespace raggrad::sparse_segment::cuda
