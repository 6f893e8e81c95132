// SparseSegmentSum, -Mean and -SqrtN, which pool rows of a table (embeddings), and their gradients.
//
// The gradients -------------------------------------------------------------------------------------------------------
//
// The forward pools rows of a table: out[s] = combine(data[indices[i]] for all i with segment_ids[i] == s). Its
// gradient adds row segment_ids[i] of `grad`, scaled, to row indices[i]:
//
//   row(r) = sum over i with indices[i] == r, in the order of i, of grad[segment_ids[i]] * scale(segment_ids[i])
//
//   scale(s) = 1                       Sum
//            = 1 / count(s)            Mean     count(s): how often s occurs in segment_ids
//            = 1 / sqrt(count(s))      SqrtN    (computed in double, rounded once)
//
// segment_pooling.h has the formulas with a weight for each id. half and bfloat16 are summed in float32 and rounded
// once. Products are rounded before they are added; float32 and float64 subnormals are flushed to zero, as TensorFlow
// does. The bits do not depend on threads or instruction set.
//
// With Accumulation::kFast the sum of a row is a fixed tree. On the CPU it adds runs of 64 contributions left to right,
// then the runs pairwise. On a GPU, where kFast is the default, all contributions are sorted by row and cut into tiles
// of 32 and groups of 16 tiles. A row adds its contributions in each tile, then its tiles in each group, both left to
// right. Then it adds its first group, part 0, part 1, ..., part 15, where part k is the sum of its later groups k,
// k + 16, k + 32, ...
//
// With Accumulation::kReproducible the sum of a row has the same bits for every order of the ids (core/sum_grid.h):
// each product is rounded to a grid that depends on the row's largest product and on their number, these are added
// exactly, and the sum is rounded once. A zero sum is +0. The error is about half a unit in the last place unless
// columns of a row differ by many powers of two (README.md has the bound).
//
// Shapes and types:
//   grad         [num_segments, inner...]  half, bfloat16, float32, float64; at least rank 1
//   indices      [n]                       int32 or int64, in [0, table_rows), any order, repeats allowed
//   segment_ids  [n]                       int32 or int64, in [0, num_segments), any order
//   dim0         []                        int32: table_rows. Always in host memory.
//
// n == 0 gives no rows (V2) or zeros (V1). dim0 == 0 gives no rows, and the ids are not read.
//
// Memory beyond the outputs: at most 24 bytes per id (16 below 2^32 segments), 8 per unique row, 12 per segment (16 for
// float64; Mean and SqrtN only), and a few KiB per worker. With weights: 20 bytes per id (float64: 32). With
// kReproducible: 8 more per segment (16 for float64), and 8 (16) per column for each part of a row that several workers
// share. Nothing has the size of the table. README.md beside this file has a GPU's, and all about weights.
//
// Errors: README.md beside this file has the table. Nothing is written on failure.
#pragma once

#include "raggrad/core/context.h"
#include "raggrad/core/result.h"
#include "raggrad/core/tensor.h"
#include "raggrad/core/tensor_view.h"
#include "raggrad/ops/padded.h"
#include "raggrad/ops/sparse_segment/segment_pooling.h"

#pragma GCC visibility push(default)
namespace raggrad {

struct SparseSegmentGradV2Output {
  Tensor output;                 // [num_unique, inner...]: only the rows that some index names
  Tensor sorted_unique_indices;  // [num_unique]: their indices, ascending, in the type of `indices`
};

Result<SparseSegmentGradV2Output> SparseSegmentGradV2(const SegmentPooling& pooling, const TensorView& grad,
                                                      const TensorView& indices, const TensorView& segment_ids,
                                                      const TensorView& dense_output_dim0,
                                                      const Context& ctx = {}) noexcept;

// SparseSegmentGradV2 with room for max_unique rows (ops/padded.h): never waits for a GPU, and can be captured.
// CheckPadded returns the number of rows, num_unique. After a fault in the ids, and with too little room, the whole
// output of a GPU is NaN.
struct SparseSegmentGradV2PaddedOutput {
  Tensor output;                 // [max_unique, inner...]: the rows, then rows of +0
  Tensor sorted_unique_indices;  // [max_unique]: their indices, then dense_output_dim0
  Tensor report;                 // [6] uint64
};

Result<SparseSegmentGradV2PaddedOutput> SparseSegmentGradV2Padded(const SegmentPooling& pooling, const TensorView& grad,
                                                                  const TensorView& indices,
                                                                  const TensorView& segment_ids,
                                                                  const TensorView& dense_output_dim0,
                                                                  int64_t max_unique, const Context& ctx = {}) noexcept;

// The same rows in their places in a dense [output_dim0, inner...]; the others are +0.
Result<Tensor> SparseSegmentGrad(const SegmentPooling& pooling, const TensorView& grad, const TensorView& indices,
                                 const TensorView& segment_ids, const TensorView& output_dim0,
                                 const Context& ctx = {}) noexcept;

// The forwards --------------------------------------------------------------------------------------------------------
//
//   out[s] = x0 + x1 + ...                        Sum      x0, x1, ...: data[indices[i]] for all i with
//          = (x0 + x1 + ...) / count(s)           Mean     segment_ids[i] == s, in the order of i
//          = (x0 + x1 + ...) / sqrt(count(s))     SqrtN
//
// Rows of segments that no id names are +0. A segment of one row is a copy, bit for bit. Otherwise the order is
// TensorFlow's: with n = count(s), the first n mod 8 rows (8 if that is 0, 9 if it is 1) are added left to right; then
// each following group of eight, added left to right by itself, is added to the total. Below n = 10 the sum is
// multiplied by 1/n or 1/sqrt(n), from there on divided by n or sqrt(n). half and bfloat16 are summed in float32 and
// rounded once; float32 and float64 subnormals are flushed to zero in sums; a sum of only -0 is -0; integers wrap.
// The bits depend neither on threads and instruction set nor on whether Context::accumulation is kSequential or kFast.
// With kReproducible they do not depend on the order of a segment's ids either: the sum is made as in the gradients, of
// rows of the table, also of a single row, and divided in double before it is rounded.
//
// Shapes and types:
//   data          [table_rows, inner...]  half, bfloat16, float32, float64; Sum also [u]int8 to [u]int64; rank >= 1
//   indices       [n]                     int32 or int64, in [0, table_rows), any order, repeats allowed
//   segment_ids   [n]                     int32 or int64, not negative, ascending; may skip
//   num_segments  []                      int32, int64; above the last segment id, below 2^31. Always in host memory.
//
// No memory beyond the output, which has a row for every segment up to the last id, named or not. README.md beside this
// file has that of weights, and of kReproducible.

// out: [last segment id + 1, inner...]; [0, inner...] if n == 0
Result<Tensor> SparseSegment(const SegmentPooling& pooling, const TensorView& data, const TensorView& indices,
                             const TensorView& segment_ids, const Context& ctx = {}) noexcept;

// out: [num_segments, inner...]
Result<Tensor> SparseSegmentWithNumSegments(const SegmentPooling& pooling, const TensorView& data,
                                            const TensorView& indices, const TensorView& segment_ids,
                                            const TensorView& num_segments, const Context& ctx = {}) noexcept;

// The gradient of the weights -----------------------------------------------------------------------------------------
//
// dot(i) is the product of grad[s] and data[indices[i]], s = segment_ids[i], and D(s) is that of segment_pooling.h:
//
//   dw(i) = dot(i)                                   Sum
//         = dot(i) / D(s)                            Mean and SqrtN with kCount
//         = (dot(i) - T(s)) / D(s)                   Mean     T(s) = (sum of w(j) * dot(j) over the ids j of s) / D(s)
//         = (dot(i) - w(i) * (T(s) / D(s))) / D(s)   SqrtN
//
// and 0 if D(s) is 0. All is computed in the type of sums, each operation rounded by itself, and rounded to the type of
// the weights at the end. dot(i) has 16 partial sums: one for columns 0, 16, 32, ..., one for 1, 17, 33, ..., each left
// to right from +0; then partial sums l and l + 8 are added, l and l + 4, l and l + 2, and the last two. The sum of
// w(j) * dot(j) is left to right. The bits depend neither on threads nor on the instruction set.
//
//   grad         [num_segments, inner...]  in the type of data; num_segments < 2^31
//   data         [table_rows, inner...]    half, bfloat16, float32, float64
//   indices      [n]                       as in the forward
//   segment_ids  [n]                       as in the forward; in [0, num_segments)
//
// One pass over the rows, which are never copied. No memory beyond the output, except for weights that are not of the
// type of sums: 8 bytes per id (float32 weights of float64 rows: 16).

// out: [n], in the type of pooling.weights
Result<Tensor> SparseSegmentWeightsGrad(const SegmentPooling& pooling, const TensorView& grad, const TensorView& data,
                                        const TensorView& indices, const TensorView& segment_ids,
                                        const Context& ctx = {}) noexcept;

}  // namespace raggrad
#pragma GCC visibility pop
