// The ids of a gradient, and checks that gradients and forwards share. Internal to the family.
#pragma once

#include <cstdint>
#include <string_view>

#include "raggrad/core/error_text.h"
#include "raggrad/core/tensor_view.h"

namespace raggrad::sparse_segment {

// Bad ids that are left out, instead of being faults. Only on a GPU: a plan sorts them behind all others, as row
// table_rows, which must be below 2^32.
enum class LeftOut {
  kNone,
  // Those whose segment is out of range, whatever row they name. For padded gradients: the report does not count that
  // row, so that padding is written over its sum.
  kBadSegments,
  // Those whose row is out of range. For sorting by segment, when segments are the rows.
  kBadIndices,
};

// Ids whose shapes and types have been checked. A plan is made from them.
struct SegmentIds {
  std::string_view op;     // for messages
  TensorView indices;      // [n]
  TensorView segment_ids;  // [n]; without data, position i is segment i
  int64_t table_rows;
  int64_t num_segments;
  // Decides which fault is reported. TensorFlow's V1 Mean and SqrtN check all segment ids before the indices; all other
  // operators check index and segment id position by position.
  bool segments_first = false;
  // Of bags, whose numbers are the segment ids: bag b has the ids from offsets[b] on (SegmentPlan::MakeOfBags). On a
  // GPU the plan makes segment_ids of them; null: they are there.
  const TensorView* offsets = nullptr;
  LeftOut left_out = LeftOut::kNone;

  int64_t n() const noexcept { return indices.dim(0); }
  bool position_is_segment() const noexcept { return segment_ids.data == nullptr; }
};

// The most rows that a table can have: contributions name them in 32 bits.
inline constexpr int64_t kMaxTableRows = int64_t{1} << 32;

inline Status CheckTableRows(std::string_view op, std::string_view argument, int64_t table_rows) noexcept {
  if (table_rows >= 0 && table_rows <= kMaxTableRows) return {};
  return InvalidArgument(op, "the number of rows is out of range [", argument, ": expected 0 to ", kMaxTableRows,
                         " rows, got ", table_rows, "]");
}

// Whether value is in [0, limit), for any limit >= 0.
template <class Int>
bool InRange(Int value, int64_t limit) noexcept {
  return static_cast<uint64_t>(static_cast<int64_t>(value)) < static_cast<uint64_t>(limit);
}

// The same without a compare: the results of many values, joined by |, are negative if one value is out of range.
template <class Int>
int64_t NegativeIfOutOfRange(Int value, int64_t limit) noexcept {
  const auto bits = static_cast<uint64_t>(static_cast<int64_t>(value));
  return static_cast<int64_t>(bits | (static_cast<uint64_t>(limit) - 1 - bits));
}

inline Status CheckVector(std::string_view op, std::string_view argument, const TensorView& ids) noexcept {
  if (ids.rank() == 1) return {};
  return InvalidArgument(op, argument, " should be a vector. [", argument, ": expected rank 1, got shape ", ids.shape,
                         "]");
}

inline Status CheckSameSize(std::string_view op, const TensorView& indices, const TensorView& segment_ids) noexcept {
  if (indices.dim(0) == segment_ids.dim(0)) return {};
  return InvalidArgument(op, "segment_ids and indices should have same size. [segment_ids: expected ", indices.dim(0),
                         " elements as indices has, got ", segment_ids.dim(0), "]");
}

// The checks above: two vectors of one size.
Status CheckIdShapes(std::string_view op, const TensorView& indices, const TensorView& segment_ids) noexcept;

// All checks of ids that need only shapes and types, for operators that TensorFlow does not have.
Status CheckIdOperands(std::string_view op, const TensorView& indices, const TensorView& segment_ids) noexcept;

}  // namespace raggrad::sparse_segment
