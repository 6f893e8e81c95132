// Checks of the operands of split sums. Internal to the family.
#pragma once

#include <cstdint>
#include <string_view>

#include "raggrad/core/operands.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/kernels.h"
#include "raggrad/ops/sparse_segment/split_sums.h"

namespace raggrad::sparse_segment {

inline constexpr int64_t kMostTerms = int64_t{1} << 48;  // of one sum: grids of more would leave the range of double

inline DType SumDType(DType data) noexcept { return data == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }
inline int64_t SumsPerColumn(DType data) noexcept { return data == DType::kFloat64 ? 2 : 1; }

inline Status CheckHost(std::string_view op, const TensorView& view) noexcept {
  if (view.device.is_cpu()) return {};
  return MakeError(Code::kUnimplemented, op, ": these sums are not there for this device yet [operands: expected host ",
                   "memory, got ", view.device, "]");
}

inline Status CheckSegmentArray(std::string_view op, std::string_view name, const TensorView& view, DType dtype,
                                int64_t segments) noexcept {
  if (view.dtype == dtype && view.rank() == 1 && view.dim(0) == segments) return {};
  return InvalidArgument(op, "an array has the wrong type or shape [", name, ": expected ", dtype, " of shape [",
                         segments, "], got ", view.dtype, " of shape ", view.shape, "]");
}

// Checks largest and counts, values included: each decides about powers of two that must exist.
template <class A>
Status CheckGrids(std::string_view op, const TensorView& largest, const TensorView& counts) noexcept {
  const A* const magnitudes = largest.As<A>();
  const int64_t* const numbers = counts.As<int64_t>();
  for (int64_t s = 0; s < counts.dim(0); ++s) {
    if (numbers[s] < 0 || numbers[s] >= kMostTerms) {
      return InvalidArgument(op, "a number of terms is out of range [counts[", s, "]: expected 0 to ", kMostTerms - 1,
                             ", got ", numbers[s], "]");
    }
    if (!(magnitudes[s] - magnitudes[s] == 0 && magnitudes[s] >= 0)) {
      return InvalidArgument(op, "a magnitude is out of range [largest[", s,
                             "]: expected a finite number that is not negative]");
    }
  }
  return {};
}

// Checks everything but the ids themselves. `factors` gets the factors, to which the problem refers.
inline Result<ForwardProblem> CheckTerms(std::string_view op, const SplitTerms& terms, int64_t num_segments,
                                         SegmentWeights& factors) noexcept {
  const auto& [data, indices, segment_ids, factor] = terms;
  if (Status s = CheckDType(op, "data", data.dtype, FloatTypes{}); !s.ok()) return s;
  if (Status s = CheckDType(op, "indices", indices.dtype, IndexTypes{}); !s.ok()) return s;
  if (Status s = CheckDType(op, "segment_ids", segment_ids.dtype, IndexTypes{}); !s.ok()) return s;
  if (Status s = CheckOperands(op, {{"data", data}, {"indices", indices}, {"segment_ids", segment_ids}}); !s.ok()) {
    return s;
  }
  if (Status s = CheckHost(op, data); !s.ok()) return s;
  if (Status s = CheckIdShapes(op, indices, segment_ids); !s.ok()) return s;
  if (data.rank() == 0) {
    return InvalidArgument(op, "Shape must be at least rank 1 [data: expected at least rank 1, got a scalar]");
  }
  if (num_segments < 0 || num_segments > INT32_MAX) {
    return InvalidArgument(op, "the number of segments is out of range [num_segments: expected 0 to ", INT32_MAX,
                           ", got ", num_segments, "]");
  }
  if (factor) {
    if (Status s = CheckOperands(op, {{"data", data}, {"factors", *factor}}); !s.ok()) return s;
    if (Status s = CheckSegmentArray(op, "factors", *factor, SumDType(data.dtype), indices.dim(0)); !s.ok()) return s;
    factors.values = *factor;
  }
  return ForwardProblem{.op = op,
                        .combiner = SegmentCombiner::kSum,
                        .data = data,
                        .indices = indices,
                        .segment_ids = segment_ids,
                        .num_segments = num_segments,
                        .weights = factor ? &factors : nullptr};
}

// The error for a segment with more terms than its count says.
template <class Seg>
Status CheckTermCounts(const ForwardProblem& p, const int64_t* counts) noexcept {
  const Seg* const segments = p.segment_ids.As<Seg>();
  for (int64_t begin = 0, end = 0; begin < p.n(); begin = end) {
    while (end < p.n() && segments[end] == segments[begin]) ++end;
    if (counts[segments[begin]] < end - begin) {
      return InvalidArgument(p.op, "a sum has more terms than all processes together [counts[", segments[begin],
                             "]: expected at least ", end - begin, ", got ", counts[segments[begin]], "]");
    }
  }
  return {};
}

}  // namespace raggrad::sparse_segment
