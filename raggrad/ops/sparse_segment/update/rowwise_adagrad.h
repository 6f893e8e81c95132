// RowwiseAdagrad on rows of a gradient that are summed and stored. Internal to the family.
#pragma once

#include "raggrad/ops/sparse_segment/kernels.h"

namespace raggrad::sparse_segment {

// Lanes that add up squares (row_update.h). Defines results.
inline constexpr int kSquareLanes = 32;

namespace on_cpu {
// rows: of `width` > 0 columns, each of the table once.
Status ApplyRowwiseAdagrad(const SparseSegmentGradV2Output& rows, const UpdateProblem& problem, int64_t width,
                           const Context& ctx) noexcept;
}  // namespace on_cpu

namespace on_cuda {
// report: says how many rows there are, and whether their ids have a fault, which leaves the table as it is; may be
// null.
Status ApplyRowwiseAdagrad(const SparseSegmentGradV2Output& rows, const UpdateProblem& problem, int64_t width,
                           const PaddedReport* report, const Context& ctx) noexcept;
}  // namespace on_cuda

}  // namespace raggrad::sparse_segment
