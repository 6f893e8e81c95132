// SegmentPooling: how the rows of a segment become one row, with or without a weight for each id.
//
//   SparseSegment(SegmentCombiner::kMean, table, indices, segment_ids);
//   SparseSegment({SegmentCombiner::kMean, {weights}}, table, indices, segment_ids);
//   SparseSegment({SegmentCombiner::kMean, {weights, WeightDivisor::kCount}}, table, indices, segment_ids);
//
// w(i) is the weight of id i, s a segment, and all sums are over the i with segment_ids[i] == s, in the order of i:
//
//   out[s] = sum of w(i) * data[indices[i]], divided by D(s); 0 if D(s) is 0
//   row(r) = sum of grad[segment_ids[i]] * (w(i) / D(segment_ids[i])) over the i with indices[i] == r; 0 where D is 0
//
//   D(s)     kWeights                kCount
//   Sum      1                       1
//   Mean     sum of w(i)             count(s)
//   SqrtN    sqrt(sum of w(i)^2)     sqrt(count(s))
//
// Everything is computed in the type of sums (float32 for half and bfloat16, else the type of the rows), each operation
// rounded by itself, subnormals flushed. Weights and their squares are summed left to right.
//
// The forward sums in the order of TensorFlow's segment_sum, not of SparseSegmentSum: fewer than 16 products left to
// right from +0 (a single one is stored as it is); from 16 on, every fourth product into one of four sums, these four
// left to right, then the products that do not fill a group of four. With kWeights, Sum and Mean have the bits of
// tf.nn.embedding_lookup_sparse on x86 if the width is a multiple of 8 (float64: of 4), or no segment has 16 ids. SqrtN
// is as close as TensorFlow's inexact squares are. The gradient sums as it does without weights, in either order of
// Accumulation; a gradient that is not finite gives NaN where w(i) / D is 0.
//
// With Accumulation::kReproducible all sums are order-free (core/sum_grid.h), those of weights, their squares and the
// products of the weights' gradient, too. Each is rounded once to the type of sums, before the root of SqrtN is taken.
// The forward divides its sum of products in double, by D(s) or, with kCount, by n or sqrt(n) in double.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "raggrad/core/result.h"
#include "raggrad/core/tensor_view.h"

#pragma GCC visibility push(default)
namespace raggrad {

enum class SegmentCombiner { kSum, kMean, kSqrtN };

// Reads "sum", "mean" or "sqrtn". Any other name is INVALID_ARGUMENT, about the argument `argument`.
Result<SegmentCombiner> CombinerByName(std::string_view name, std::string_view argument = "combiner") noexcept;

// The divisor of Mean and SqrtN.
enum class WeightDivisor {
  kWeights,  // the sum of the weights, or the root of the sum of their squares: TensorFlow's embedding_lookup_sparse
  kCount,    // the number of ids, or its root: PyTorch's embedding_bag
};

struct SegmentWeights {
  TensorView values;  // [n], in the type of the rows or float32
  WeightDivisor divisor = WeightDivisor::kWeights;
};

struct SegmentPooling {
  SegmentPooling(SegmentCombiner combine) noexcept : combiner(combine) {}  // NOLINT: a combiner is a pooling
  SegmentPooling(SegmentCombiner combine, SegmentWeights w) noexcept : combiner(combine), weights(std::move(w)) {}

  SegmentCombiner combiner;
  std::optional<SegmentWeights> weights;
};

}  // namespace raggrad
#pragma GCC visibility pop
