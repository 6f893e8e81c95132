// Checks of ids and output shape for the forwards on every device, with their error texts. Internal to the family.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "raggrad/core/error_text.h"
#include "raggrad/ops/sparse_segment/ids.h"
#include "raggrad/ops/sparse_segment/kernels.h"

namespace raggrad::sparse_segment {

// The number of output rows, from the last segment id. TensorFlow counts rows in the types of the ids, so the count
// wraps here as it does there: that decides which error a hostile last id gets.
template <class Idx, class Seg>
Result<int64_t> OutputRows(const ForwardProblem& p, Seg last) noexcept {
  if (p.n() == 0) return p.num_segments.value_or(0);
  constexpr int64_t kLimit = std::numeric_limits<Idx>::max();
  const int64_t position = p.n() - 1;
  if (last >= kLimit) {
    return InvalidArgument(p.op, "Last segment id must be < kintmax, got ", last, " limit ", kLimit, " [segment_ids[",
                           position, "]: expected less than ", kLimit, ", got ", last, "]");
  }
  const Seg next = static_cast<Seg>(static_cast<std::make_unsigned_t<Seg>>(last) + 1U);
  if (p.num_segments && *p.num_segments < next) {
    return InvalidArgument(p.op, "segment ids must be < num_segments [segment_ids[", position, "]: expected less than ",
                           *p.num_segments, ", got ", last, "]");
  }
  const int64_t rows = p.num_segments ? *p.num_segments : static_cast<Idx>(next);
  if (rows <= 0) {
    return InvalidArgument(p.op, "segment ids must be >= 0 [segment_ids[", position, "]: expected at least 0",
                           last > 0 ? " and less than the type's largest number" : "", ", got ", last, "]");
  }
  return rows;
}

// The error for an output of 2^63 elements or more. TensorFlow stores dimensions in 16 bits (up to rank 6), 32 bits (up
// to rank 3) or 64. Its text depends on whether the new first dimension still fits where the old ones were.
inline Status OverflowError(std::string_view op, const Shape& data, const Shape& output) noexcept {
  const auto fits = [&](int max_rank, int64_t limit) {
    return data.rank() <= max_rank && std::ranges::all_of(data.dims(), [&](int64_t dim) { return dim < limit; });
  };
  constexpr int64_t k16Bit = UINT16_MAX - 1;
  constexpr int64_t k32Bit = int64_t{UINT32_MAX} - 1;
  const int64_t limit = fits(6, k16Bit) ? k16Bit : fits(3, k32Bit) ? k32Bit : INT64_MAX;
  constexpr std::string_view kWhere = " [output: its rows, with the inner dimensions of data]";
  if (output[0] < limit) {
    return InvalidArgument(op, "Shape ", output, " results in overflow when computing number of elements", kWhere);
  }
  int64_t elements = output[0];
  for (const int64_t dim : output.tail()) {
    int64_t product = 0;
    if (__builtin_mul_overflow(elements, dim, &product)) {
      uint64_t wrapped = 0;
      const bool wraps = __builtin_mul_overflow(static_cast<uint64_t>(elements), static_cast<uint64_t>(dim), &wrapped);
      return InvalidArgument(op, "Encountered overflow when multiplying ", elements, " with ", dim,
                             ", result: ", wraps ? int64_t{-1} : static_cast<int64_t>(wrapped), kWhere);
    }
    elements = product;
  }
  return {};
}

inline Result<Shape> OutputShape(const ForwardProblem& p, int64_t rows) noexcept {
  Shape shape = Shape::WithDim0(rows, p.data.shape.tail());
  if (shape.valid() && !shape.NumElements()) return OverflowError(p.op, p.data.shape, shape);
  return shape;
}

// The fault that TensorFlow meets first when it goes from segment to segment. Called only if there is one, with ids in
// host memory.
template <class Idx, class Seg>
Status FirstFault(const ForwardProblem& p, int64_t rows) noexcept {
  const Idx* indices = p.indices.As<Idx>();
  const Seg* ids = p.segment_ids.As<Seg>();
  for (int64_t begin = 0, end = 0; begin < p.n(); begin = end) {
    while (end < p.n() && ids[end] == ids[begin]) ++end;
    if (end < p.n() && ids[end] < ids[begin]) {
      return InvalidArgument(p.op, "segment ids are not increasing [segment_ids[", end, "]: expected at least ",
                             ids[begin], ", got ", ids[end], "]");
    }
    if (!InRange(ids[begin], rows)) {
      return InvalidArgument(p.op, "Segment id ", ids[begin], " out of range [0, ", rows,
                             "), possibly because 'segment_ids' input is not sorted. [segment_ids[", begin, "]]");
    }
    for (int64_t i = begin; i < end; ++i) {
      if (InRange(indices[i], p.data.dim(0))) continue;
      return InvalidArgument(p.op, "Bad: indices[", i, "] == ", indices[i], " out of range [0, ", p.data.dim(0), ")");
    }
  }
  return MakeError(Code::kInternal, p.op, ": indices or segment_ids changed during the call");
}

// Signed sums wrap like unsigned ones, so loops exist for unsigned integers only.
template <class T>
struct RowType {
  using type = T;
};
template <class T>
requires std::is_integral_v<T>
struct RowType<T> {
  using type = std::make_unsigned_t<T>;
};

// Calls f<Idx, Seg>() with the types of the ids.
template <class F>
auto VisitIds(const ForwardProblem& p, const F& f) noexcept {
  return Visit(IndexTypes{}, p.indices.dtype, [&]<class Idx>() {
    return Visit(IndexTypes{}, p.segment_ids.dtype, [&]<class Seg>() { return f.template operator()<Idx, Seg>(); });
  });
}

}  // namespace raggrad::sparse_segment
