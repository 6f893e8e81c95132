// Padded forms: operators whose result has the size that the caller names, not one that depends on the data.
//
//   auto slice = SparseSlicePadded(indices, values, shape, start, size, /*max_kept=*/1000, ctx);
//   ...                                                    // more work on the stream
//   Result<int64_t> kept = CheckPadded(*slice, ctx);       // waits; the first `kept` entries are the slice
//
// On a GPU such a call never waits: it reads nothing back, returns before the result is there, and can be captured in a
// CUDA graph (docs/gpu.md). Operands in host memory are read when the call is made, so a replay uses the same ones.
//
// Behind the rows or entries lies padding: values that are zero (strings: empty), at an index that is the dense array's
// first dimension, with zeros in all other columns. That index is out of range, and sorts behind all others.
//
// The last output is the report, six uint64 in the memory of the operands. Kernels of the caller may read two of them:
//   report[0]   the number of rows or entries that there are, whether there was room for them or not
//   report[1]   2^64 - 1, or anything else if the operands have a fault
// After a fault, and with too little room, the outputs mean nothing. Nothing is ever written out of bounds.
//
// In host memory a padded form returns these errors at once, and its report is always a good one.
#pragma once

#include "raggrad/core/context.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor_view.h"

#pragma GCC visibility push(default)
namespace raggrad {

// Waits for the stream and returns report[0]. Returns the error of the form without padding if the operands have a
// fault, and RESOURCE_EXHAUSTED if there was too little room.
Result<int64_t> CheckPadded(const TensorView& report, const Context& ctx = {}) noexcept;

// The same for any result of a padded form.
template <class Output>
requires requires(const Output& output) { output.report.view(); }
Result<int64_t> CheckPadded(const Output& padded, const Context& ctx = {}) noexcept {
  return CheckPadded(padded.report.view(), ctx);
}

}  // namespace raggrad
#pragma GCC visibility pop
